// Asks about every transaction on stdin at once, and writes what each call ended with: one JSON object a line.
import { text } from "node:stream/consumers";
import "reflect-metadata";
import { Checkout } from "./checkout.mjs";

const [bootstrap, transactions, group] = process.argv.slice(2);
const checkout = new Checkout(bootstrap.split(","), transactions, group);
await checkout.start();

async function ask(line) {
  const asked = JSON.parse(line).transaction_id;
  try {
    return { asked, answer: await checkout.decide(JSON.parse(line), 60_000) };
  } catch (error) {
    return error.code && error.field ? { asked, error } : { asked, failed: String(error) };
  }
}

const lines = (await text(process.stdin)).trim().split("\n");
for (const answer of await Promise.all(lines.map(ask))) process.stdout.write(JSON.stringify(answer) + "\n");
await checkout.close();
process.exit(0);

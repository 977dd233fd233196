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
const answers = await Promise.all(lines.map(ask));
await checkout.close();
process.stdout.write(answers.map((answer) => JSON.stringify(answer) + "\n").join(""), () => process.exit(0));

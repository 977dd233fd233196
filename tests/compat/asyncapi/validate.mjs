// What AsyncAPI's own parser says of a document and of the schemas that it names: one JSON array on stdout.
import { readFile } from "node:fs/promises";
import { Parser } from "@asyncapi/parser";

const path = process.argv[2];
const diagnostics = await new Parser().validate(await readFile(path, "utf-8"), { source: path });
console.log(JSON.stringify(diagnostics.map(({ code, message, path, severity }) => ({ code, message, path, severity }))));

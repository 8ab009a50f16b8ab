// Compares encode.json with the npm package `tokenizers`: node tools/train/check_encode.mjs TOKENIZER_JSON ENCODE_JSON
// (in a folder where `npm install tokenizers` was run). Exit status 1 when a string differs.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [tokenizerFile, casesFile] = process.argv.slice(2);
const { Tokenizer } = createRequire(join(process.cwd(), "package.json"))("tokenizers");
const tokenizer = Tokenizer.fromFile(tokenizerFile);
const cases = JSON.parse(readFileSync(casesFile, "utf8"));
let differ = 0;
for (const { text, ids } of cases) {
  const encoding = await tokenizer.encode(text, null, { addSpecialTokens: false });
  if (JSON.stringify(Array.from(encoding.getIds())) !== JSON.stringify(ids)) {
    differ += 1;
    console.log("differs:", JSON.stringify(text));
  }
}
console.log(`${cases.length} strings, ${differ} differ`);
process.exit(differ ? 1 : 0);

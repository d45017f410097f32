// Asks a server all that a test wants to know, with OpenAI's own client, and prints the answers as one JSON object.
// node openai.mjs ADDRESS ADDRESS-OF-A-BUSY-SERVER QUESTIONS; the test beside this file has the questions and judges the answers.
import OpenAI from "openai";

const [address, busy, questions] = process.argv.slice(2);
const { chat, letter, long, form, tool, weather } = JSON.parse(questions);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "none", maxRetries: 0 });
const create = (asked, other = client) => other.chat.completions.create(asked);

async function stream() {
  const found = { text: "", reasons: [], usage: null };
  for await (const chunk of await create({ ...chat, stream: true, stream_options: { include_usage: true } })) {
    found.usage = chunk.usage ?? found.usage;
    for (const choice of chunk.choices) {
      found.text += choice.delta.content ?? "";
      if (choice.finish_reason) found.reasons.push(choice.finish_reason);
    }
  }
  return found;
}

async function roundTrip() {
  const asked = { model: "caller", tools: [tool], temperature: 0 };
  const first = await create({ ...asked, messages: weather });
  const { message } = first.choices[0];
  const streamed = await client.chat.completions.stream({ ...asked, messages: weather }).finalMessage();
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "21 degrees" };
  const last = await create({ ...asked, messages: [...weather, message, result] });
  return { first: first.choices[0], streamed, last: last.choices[0].message.content };
}

async function stop() {
  const answer = client.chat.completions.stream({ ...chat, max_tokens: 900, ignore_eos: true });
  for await (const _ of answer) answer.abort();
}

async function failure(work) {
  try {
    await work();
    return null;
  } catch (error) {
    return { kind: error.constructor.name, status: error.status, code: error.code, param: error.param, message: error.message };
  }
}

async function embeddings() {
  const asked = { model: "tiny", input: ["the and", "is"] };
  const packed = await client.embeddings.create(asked); // travels as base64
  const plain = await client.embeddings.create({ ...asked, encoding_format: "float" });
  return { packed: packed.data.map((one) => one.embedding), plain: plain.data.map((one) => one.embedding) };
}

const responses = async () => (await client.responses.create({ model: "tiny", input: "Hi", max_output_tokens: 9, temperature: 0 })).output_text;
const forced = { tools: [tool], tool_choice: "required", parallel_tool_calls: false, max_tokens: 200 };
const found = {
  chat: await create(chat),
  stream: await stream(),
  logprobs: await create({ ...chat, logprobs: true, top_logprobs: 2 }),
  several: await create({ ...chat, n: 2 }),
  cut: await create({ ...chat, stop: [letter] }),
  form: await create({ ...chat, max_tokens: 200, response_format: form }),
  forced: await create({ ...chat, ...forced }),
  roundTrip: await roundTrip(),
  stopped: await failure(stop),
  embeddings: await embeddings(),
  responses: await responses(),
  models: (await client.models.list()).data.map((model) => model.id),
  missing: await failure(() => create({ ...chat, model: "other" })),
  wrong: await failure(() => create({ ...chat, temperature: "hot" })),
  long: await failure(() => create({ ...chat, messages: long, stream: true })),
  busy: await failure(() => create(chat, client.withOptions({ baseURL: `${busy}/v1` }))),
};
console.log(JSON.stringify(found));

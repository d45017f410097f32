// The chat page: talks to this server's own /v1 routes, keeps conversations in this browser, asks nothing of anybody else.

const $ = (id) => document.getElementById(id);
const STORE = "edgellm.conversations";
const SETTINGS = "edgellm.settings";
const NUMBERS = ["temperature", "top_p", "top_k", "max_tokens", "seed"];

let conversations = load(STORE, []);
let current = conversations[0] ?? null;
let answering = null; // an AbortController while an answer comes

function load(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
}

function keep() {
  try {
    localStorage.setItem(STORE, JSON.stringify(conversations));
  } catch {
    say("This browser has no room for more: delete a conversation to keep new ones.", true);
  }
}

function say(text, isError = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", isError);
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// ---- what is shown ----
function showConversations() {
  $("conversations").replaceChildren(...conversations.map((one) => {
    const open = element("button", { type: "button", textContent: one.title || "New conversation" });
    if (one === current) open.setAttribute("aria-current", "true");
    open.onclick = () => { if (!answering) { current = one; show(); } };
    const remove = element("button", { type: "button", textContent: "✕", title: "Delete" });
    remove.setAttribute("aria-label", `Delete ${one.title || "conversation"}`);
    remove.onclick = () => {
      if (answering) return;
      conversations = conversations.filter((other) => other !== one);
      if (current === one) current = conversations[0] ?? null;
      keep();
      show();
    };
    return element("li", {}, open, remove);
  }));
}

function show() {
  showConversations();
  $("messages").replaceChildren(...(current?.messages ?? []).map(makeArticle));
  $("messages").scrollTop = $("messages").scrollHeight;
  $("again").disabled = !(current?.messages.length) || answering !== null;
}

function makeArticle(message) {
  const title = message.role === "user" ? "You" : "Model";
  const article = element("article", { className: message.role }, element("h2", { textContent: title }));
  fill(article, message);
  return article;
}

function fill(article, message) {
  article.querySelectorAll(":scope > :not(h2)").forEach((old) => old.remove());
  if (message.reasoning) {
    const thought = element("details", {}, element("summary", { textContent: "Reasoning" }));
    thought.append(element("p", { textContent: message.reasoning }));
    article.append(thought);
  }
  // Text is shown as text; blocks between ``` lines keep their columns. Nothing of an answer is ever read as HTML.
  message.content.split(/^```.*$/m).forEach((part, i) => {
    const text = part.replace(/^\n|\n$/g, "");
    if (!text) return;
    article.append(i % 2 ? element("pre", {}, element("code", { textContent: text })) : element("p", { textContent: text }));
  });
  if (message.note) article.append(element("footer", { textContent: message.note }));
}

// ---- asking ----
function headers() {
  const key = $("key").value;
  return key ? { "Authorization": `Bearer ${key}` } : {};
}

function body() {
  const system = $("system").value.trim();
  const messages = current.messages.map(({ role, content }) => ({ role, content }));
  const asked = { model: $("model").value, stream: true, stream_options: { include_usage: true }, messages };
  if (system) messages.unshift({ role: "system", content: system });
  for (const name of NUMBERS) {
    if ($(name).value !== "") asked[name] = Number($(name).value);
  }
  return asked;
}

async function* read(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

async function answer() {
  const message = { role: "assistant", content: "", reasoning: "" };
  answering = new AbortController();
  $("stop").hidden = false;
  $("send").disabled = $("again").disabled = true;
  say("Reading…");
  const sent = body();
  const article = makeArticle(message);
  $("messages").append(article);
  try {
    const asked = { method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(sent) };
    const response = await fetch("v1/chat/completions", { ...asked, signal: answering.signal });
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const chunk of read(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      take(chunk, message, article);
    }
    say("Ready.");
  } catch (error) {
    say(error.name === "AbortError" ? "Stopped." : error.message, error.name !== "AbortError");
  }
  finish(message);
}

function take(chunk, message, article) {
  const box = $("messages");
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  for (const choice of chunk.choices) {
    message.content += choice.delta.content ?? "";
    message.reasoning += choice.delta.reasoning_content ?? "";
    if (choice.delta.content || choice.delta.reasoning_content) say("Answering…");
    if (choice.finish_reason === "length") message.cut = true;
  }
  if (chunk.timings) {
    const t = chunk.timings;
    message.note = `${t.predicted_n} tokens, ${t.predicted_per_second.toFixed(1)} a second`
      + (t.draft_n ? `, ${t.draft_n_accepted} of ${t.draft_n} guessed ahead` : "")
      + (message.cut ? "; cut at the longest answer" : "");
  }
  fill(article, message);
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

function finish(message) {
  answering = null;
  $("stop").hidden = true;
  $("send").disabled = false;
  if (message.content || message.reasoning) current.messages.push(message);
  keep();
  show();
  $("text").focus();
}

function send(text) {
  if (current === null) begin();
  if (!current.title) current.title = text.slice(0, 40);
  current.messages.push({ role: "user", content: text });
  keep();
  show();
  answer();
}

function begin() {
  current = { title: "", messages: [] };
  conversations.unshift(current);
}

// ---- events ----
$("ask").onsubmit = (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (text && !answering) {
    $("text").value = "";
    send(text);
  }
};
$("text").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
};
document.onkeydown = (event) => { if (event.key === "Escape") answering?.abort(); };
$("stop").onclick = () => answering?.abort();
$("again").onclick = () => {
  if (current.messages.at(-1)?.role === "assistant") current.messages.pop();
  show();
  answer();
};
$("new").onclick = () => { if (!answering) { begin(); keep(); show(); $("text").focus(); } };
$("settings").onsubmit = (event) => event.preventDefault();
$("settings").onchange = () => {
  const kept = Object.fromEntries(["system", ...NUMBERS].map((name) => [name, $(name).value]));
  localStorage.setItem(SETTINGS, JSON.stringify(kept));
};

async function start() {
  for (const [name, value] of Object.entries(load(SETTINGS, {}))) if ($(name)) $(name).value = value;
  show();
  try {
    const response = await fetch("v1/models", { headers: headers() });
    const found = await response.json();
    if (!response.ok) throw new Error(found.error.message);
    $("model").replaceChildren(...found.data.map((one) => element("option", { textContent: one.id })));
    say("Ready.");
  } catch (error) {
    say(error.message, true);
  }
}
$("key").onchange = start;
start();

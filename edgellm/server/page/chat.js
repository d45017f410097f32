// The chat page: talks to this server's own /v1 routes, keeps conversations in this browser, asks nothing of anybody else.

const $ = (id) => document.getElementById(id);
const STORE = "edgellm.conversations";
const SETTINGS = "edgellm.settings";
const NUMBERS = ["temperature", "top_p", "top_k", "max_tokens", "seed"];
const KEPT = ["model", "system", ...NUMBERS]; // not the key, which should not lie about

let conversations = loadConversations();
let current = conversations[0] ?? null;
let answering = null; // an AbortController while an answer comes

// ---- what is kept ----
function load(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
}

function store(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    say("This browser has no room for more: delete a conversation to keep new ones.", true);
  }
}

function loadConversations() {
  const found = load(STORE, []);
  return Array.isArray(found) ? found.filter((one) => one?.id && Array.isArray(one.messages)) : [];
}

// Other pages of this browser keep theirs in the same place: only what changed here is changed there.
function keep(one) {
  const others = loadConversations();
  const at = others.findIndex((other) => other.id === one.id);
  if (at < 0) others.unshift(one);
  else others[at] = one;
  store(STORE, others);
  refresh();
}

function forget(one) {
  store(STORE, loadConversations().filter((other) => other.id !== one.id));
  if (current === one) current = null;
  refresh();
}

function refresh() {
  conversations = loadConversations().map((one) => (one.id === current?.id ? current : one));
  if (current && !conversations.includes(current)) conversations.unshift(current);
}

// ---- what is shown ----
function say(text, isError = false) {
  if ($("status").textContent !== text) $("status").textContent = text; // a screen reader says each change
  $("status").classList.toggle("error", isError);
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function showConversations() {
  $("conversations").replaceChildren(...conversations.map((one) => {
    const title = one.title || "New conversation";
    const open = element("button", { type: "button", textContent: title });
    if (one === current) open.setAttribute("aria-current", "true");
    open.onclick = () => { if (!answering) { current = one; show(); showMenu(false); $("text").focus(); } };
    const remove = element("button", { type: "button", textContent: "✕", title: "Delete" });
    remove.setAttribute("aria-label", `Delete ${title}`);
    remove.onclick = () => {
      if (answering || !confirm(`Delete “${title}”?`)) return;
      forget(one);
      current ??= conversations[0] ?? null;
      show();
      $("new").focus();
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

function showMenu(isOpen) {
  document.body.classList.toggle("menu", isOpen);
  $("menu").setAttribute("aria-expanded", String(isOpen));
}

function makeArticle(message) {
  const title = message.role === "user" ? "You" : message.model || "Model";
  const article = element("article", { className: message.role }, element("h2", { textContent: title }));
  article.setAttribute("aria-label", title);
  fill(article, message);
  return article;
}

function fill(article, message) {
  const wasOpen = article.querySelector("details")?.open ?? false;
  article.querySelectorAll(":scope > :not(h2)").forEach((old) => old.remove());
  if (message.reasoning) {
    const thought = element("details", { open: wasOpen }, element("summary", { textContent: "Reasoning" }));
    thought.append(element("p", { textContent: message.reasoning.trim() }));
    article.append(thought);
  }
  // Blocks between ``` lines keep their columns. Nothing of an answer is ever read as HTML.
  const parts = message.role === "user" ? [message.content] : message.content.split(/^```.*$/m);
  parts.forEach((part, i) => {
    const text = part.replace(/^\n+|\s+$/g, "");
    if (!text) return;
    article.append(i % 2 ? element("pre", { tabIndex: 0 }, element("code", { textContent: text })) : paragraph(text, message.role));
  });
  if (message.note) article.append(element("footer", { textContent: message.note }));
}

function paragraph(text, role) {
  if (role === "user") return element("p", { textContent: text });
  return element("p", {}, ...text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((piece, i) => {
    if (i % 2 === 0) return piece;
    return piece[0] === "`" ? element("code", { textContent: piece.slice(1, -1) }) : element("strong", { textContent: piece.slice(2, -2) });
  }));
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

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The server does not answer; is it running?");
  }
  if (response.ok) return response;
  if (response.status === 401) $("more").open = true; // where the key is written
  const told = await response.json().catch(() => null);
  throw new Error(told?.error?.message ?? `The server answers ${response.status} ${response.statusText}`);
}

async function* read(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }
}

async function answer() {
  const message = { role: "assistant", content: "", reasoning: "", model: $("model").value };
  answering = new AbortController();
  $("stop").hidden = false;
  $("send").disabled = $("again").disabled = true;
  say("Reading…");
  tellOfLoading(message, answering);
  const sent = body();
  const article = makeArticle(message);
  $("messages").append(article);
  $("messages").scrollTop = $("messages").scrollHeight;
  try {
    const asked = { method: "POST", headers: { "Content-Type": "application/json", ...headers() }, body: JSON.stringify(sent) };
    const response = await ask("v1/chat/completions", { ...asked, signal: answering.signal });
    for await (const chunk of read(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      if (take(chunk, message)) draw(article, message);
    }
    say("Ready.");
  } catch (error) {
    const isStopped = error.name === "AbortError";
    if (isStopped) message.note = "stopped";
    say(isStopped ? "Stopped." : error.message, !isStopped);
  }
  finish(message);
}

// A model that nobody has asked yet is loaded first, and compiled before that where it is the machine's first.
async function tellOfLoading(message, own) {
  for (;;) {
    await new Promise((done) => setTimeout(done, 500));
    const isWaiting = () => answering === own && !message.content && !message.reasoning;
    if (!isWaiting()) return;
    const asked = await fetch(`v1/models/${encodeURIComponent(message.model)}`, { headers: headers() }).catch(() => null);
    const found = asked?.ok ? await asked.json() : {};
    if (!isWaiting()) return;
    say(["ready", "idle", undefined].includes(found.status) ? "Reading…" : `Loading the model: ${found.status}…`);
  }
}

function take(chunk, message) {
  for (const choice of chunk.choices ?? []) {
    message.content += choice.delta.content ?? "";
    message.reasoning += choice.delta.reasoning_content ?? "";
    if (choice.delta.content || choice.delta.reasoning_content) say("Answering…");
    if (choice.finish_reason === "length") message.cut = true;
  }
  if (chunk.timings) {
    const t = chunk.timings;
    message.note = `${t.predicted_n} tokens, ${t.predicted_per_second.toFixed(1)} a second`
      + (t.draft_n ? `, ${t.draft_n_accepted} of ${t.draft_n} guessed ahead` : "")
      + `; ${t.prompt_n + t.cache_n} read` + (t.cache_n ? `, ${t.cache_n} of them in the cache` : "")
      + (message.cut ? "; cut at the longest answer" : "");
  }
  return chunk.choices?.length > 0;
}

// At most once for each picture the screen shows, however fast tokens come.
function draw(article, message) {
  if (article.isWaiting) return;
  article.isWaiting = true;
  requestAnimationFrame(() => {
    article.isWaiting = false;
    const box = $("messages");
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    fill(article, message);
    if (isAtEnd) box.scrollTop = box.scrollHeight;
  });
}

function finish(message) {
  answering = null;
  $("stop").hidden = true;
  $("send").disabled = false;
  if (message.content || message.reasoning) current.messages.push(message);
  $("spoken").textContent = message.content; // whole, for a screen reader: word by word it would be noise
  keep(current);
  show();
  $("text").focus();
}

function send(text) {
  if (current === null) begin();
  if (!current.title) current.title = text.slice(0, 40);
  current.messages.push({ role: "user", content: text });
  keep(current);
  show();
  answer();
}

function begin() {
  current = { id: `${Date.now()}-${Math.random()}`, title: "", messages: [] };
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
document.onkeydown = (event) => {
  if (event.key !== "Escape") return;
  answering?.abort();
  showMenu(false);
};
$("stop").onclick = () => answering?.abort();
$("again").onclick = () => {
  if (current.messages.at(-1)?.role === "assistant") current.messages.pop();
  show();
  answer();
};
$("new").onclick = () => {
  if (answering) return;
  if (current?.messages.length !== 0) begin(); // an empty one is new enough
  show();
  showMenu(false);
  $("text").focus();
};
$("menu").onclick = () => {
  showMenu(!document.body.classList.contains("menu"));
  if (document.body.classList.contains("menu")) $("new").focus();
};
$("settings").onsubmit = (event) => event.preventDefault();
$("settings").onchange = $("model").onchange = () => {
  store(SETTINGS, Object.fromEntries(KEPT.map((name) => [name, $(name).value])));
};
window.onstorage = (event) => {
  if (event.key !== STORE) return;
  refresh();
  showConversations();
};

async function start() {
  const kept = load(SETTINGS, {});
  for (const name of ["system", ...NUMBERS]) if (typeof kept[name] === "string") $(name).value = kept[name];
  show();
  try {
    const found = await (await ask("v1/models", { headers: headers() })).json();
    $("model").replaceChildren(...found.data.map((one) => element("option", { textContent: one.id })));
    if (found.data.some((one) => one.id === kept.model)) $("model").value = kept.model;
    say("Ready.");
  } catch (error) {
    say(error.message, true);
  }
}
$("key").onchange = start;
start();

// Reads streams with npm's eventsource-parser, a reader that shares nothing with ours.
// stdin: [[piece, …], …] (base64); stdout: for each stream its events [[data, type, last_id], …].
import { createParser } from "eventsource-parser";

const read = (pieces) => {
  const events = [];
  let lastId = "";
  const parser = createParser({
    onEvent(event) {
      // The package tells the id of each event's own block; keeping it is its user's part.
      if (event.id !== undefined) lastId = event.id;
      events.push([event.data, event.event ?? "message", lastId]);
    },
  });
  const decoder = new TextDecoder(); // strips one byte-order mark, as UTF-8 decode does
  for (const piece of pieces) parser.feed(decoder.decode(Buffer.from(piece, "base64"), { stream: true }));
  return events;
};

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
console.log(JSON.stringify(JSON.parse(Buffer.concat(chunks)).map(read)));

// client.mjs calls the tools with the protocol's own SDK for TypeScript, on which editors and agents are built.
// It prints a line of JSON for each answer.
//
//   node client.mjs URL                     over streamable HTTP
//   node client.mjs -- PROGRAM ARGUMENT...  over standard input and output, with a subscription to k8s://-/configmaps/default/one
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [url, command, ...args] = process.argv.slice(2);
const transport = command
  ? new StdioClientTransport({ command, args, env: process.env })
  : new StreamableHTTPClientTransport(new URL(url));
const print = (name, value) => console.log(JSON.stringify({ name, value }));

const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
print("tools", (await client.listTools()).tools.map((tool) => tool.name).sort().join(" "));
const call = async (name, args) => print(name, (await client.callTool({ name, arguments: args })).content[0].text);
await call("find", { resource: "configmaps", labelSelector: "app=web" });
await call("get", { resource: "configmaps", namespace: "default", name: "none" });
if (command) {
  const uri = "k8s://-/configmaps/default/one";
  const updated = new Promise((resolve) => {
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, (notification) => resolve(notification.params.uri));
  });
  await client.subscribeResource({ uri });
  print("subscribed", uri);
  print("updated", await updated);
  print("read", (await client.readResource({ uri })).contents[0].text);
}
await client.close();

// The npm package sqs-consumer: it polls, handles, and deletes what it has handled.
import assert from "node:assert/strict";
import {
  CreateQueueCommand,
  GetQueueAttributesCommand,
  SendMessageBatchCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const sqs = new SQSClient({ endpoint: process.env.ENDPOINT });
const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "consumed" }));

const bodies = [];
let failures = 0;
const all = Promise.withResolvers?.() ?? later();
const consumer = Consumer.create({
  queueUrl: QueueUrl,
  sqs,
  batchSize: 10,
  waitTimeSeconds: 5,
  visibilityTimeout: 30,
  terminateVisibilityTimeout: true, // what fails is shown again at once
  handleMessage: async (message) => {
    if (message.Body === "flaky" && failures++ === 0) throw new Error("the first time fails");
    bodies.push(message.Body);
    return message;
  },
});
consumer.on("message_processed", () => bodies.length === 11 && all.resolve());
consumer.on("error", all.reject);
consumer.start();

const Entries = Array.from({ length: 10 }, (_, n) => ({ Id: `${n}`, MessageBody: `${n}` }));
await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries: [{ Id: "f", MessageBody: "flaky" }] }));
await all.promise;
consumer.stop({ abort: true });

assert.equal(failures, 2);
assert.deepEqual(bodies.sort(), [...Array(10).keys()].map(String).concat("flaky"));
let left;
do {
  const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }));
  left = Number(Attributes.ApproximateNumberOfMessages) + Number(Attributes.ApproximateNumberOfMessagesNotVisible);
} while (left > 0);
console.log("done");

function later() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

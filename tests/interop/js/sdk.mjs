// aws-sdk-js v3: the life of messages, batches, errors and FIFO queues.
import assert from "node:assert/strict";
import {
  ChangeMessageVisibilityCommand,
  CreateQueueCommand,
  DeleteMessageBatchCommand,
  DeleteMessageCommand,
  GetQueueAttributesCommand,
  GetQueueUrlCommand,
  QueueDoesNotExist,
  ReceiveMessageCommand,
  SendMessageBatchCommand,
  SendMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";

// The client checks the MD5 of every body and of every attribute that it gets.
const sqs = new SQSClient({ endpoint: process.env.ENDPOINT });
const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "javascript" }));

const MessageBody = "grüße 🏤 \r\n<&\"'>";
const sent = await sqs.send(
  new SendMessageCommand({
    QueueUrl,
    MessageBody,
    MessageAttributes: {
      colour: { DataType: "String", StringValue: "röt" },
      data: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) },
    },
  }),
);
const receive = { QueueUrl, WaitTimeSeconds: 5, MessageAttributeNames: ["All"], AttributeNames: ["All"] };
const { Messages: [first] } = await sqs.send(new ReceiveMessageCommand(receive));
assert.equal(first.MessageId, sent.MessageId);
assert.equal(first.Body, MessageBody);
assert.equal(first.MD5OfMessageAttributes, sent.MD5OfMessageAttributes);
assert.deepEqual([...first.MessageAttributes.data.BinaryValue], [0, 255]);
const { ReceiptHandle } = first;
await sqs.send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle, VisibilityTimeout: 0 }));
const { Messages: [second] } = await sqs.send(new ReceiveMessageCommand(receive));
assert.equal(second.Attributes.ApproximateReceiveCount, "2");
await sqs.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: second.ReceiptHandle }));

const batch = await sqs.send(
  new SendMessageBatchCommand({
    QueueUrl,
    Entries: [
      { Id: "a", MessageBody: "a" },
      { Id: "b", MessageBody: "b" },
      { Id: "c", MessageBody: "c", DelaySeconds: 901 },
    ],
  }),
);
assert.deepEqual(batch.Successful.map((each) => each.Id), ["a", "b"]);
assert.deepEqual(batch.Failed.map((each) => [each.Id, each.SenderFault]), [["c", true]]);
const { Messages } = await sqs.send(new ReceiveMessageCommand({ ...receive, MaxNumberOfMessages: 10 }));
assert.deepEqual(Messages.map((each) => each.Body).sort(), ["a", "b"]);
await sqs.send(
  new DeleteMessageBatchCommand({
    QueueUrl,
    Entries: Messages.map((each, n) => ({ Id: `${n}`, ReceiptHandle: each.ReceiptHandle })),
  }),
);
const { Attributes } = await sqs.send(
  new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }),
);
assert.equal(Attributes.ApproximateNumberOfMessages, "0");

await assert.rejects(sqs.send(new GetQueueUrlCommand({ QueueName: "missing" })), QueueDoesNotExist);

const fifo = { QueueName: "javascript.fifo", Attributes: { FifoQueue: "true", ContentBasedDeduplication: "true" } };
const { QueueUrl: line } = await sqs.send(new CreateQueueCommand(fifo));
for (const body of ["1", "2", "2", "3"]) {
  await sqs.send(new SendMessageCommand({ QueueUrl: line, MessageBody: body, MessageGroupId: "g" }));
}
const inLine = await sqs.send(new ReceiveMessageCommand({ QueueUrl: line, MaxNumberOfMessages: 10, WaitTimeSeconds: 5 }));
assert.deepEqual(inLine.Messages.map((each) => each.Body), ["1", "2", "3"]);
console.log("done");

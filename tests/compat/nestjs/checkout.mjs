import { Transport, ClientProxyFactory } from "@nestjs/microservices";
import { firstValueFrom, timeout } from "rxjs";

/** Asks Assay what to do with a payment. In a module, ClientsModule.register makes the same client. */
export class Checkout {
  constructor(brokers, transactions, groupId) {
    this.transactions = transactions;
    this.client = ClientProxyFactory.create({
      transport: Transport.KAFKA,
      options: { client: { brokers }, consumer: { groupId } },
    });
  }

  /** Ready once a partition of the reply topic, TRANSACTIONS.reply, is ours. The topic has to exist. */
  async start() {
    this.client.subscribeToResponseOf(this.transactions);
    await this.client.connect();
  }

  /**
   * The decision: approve, review or decline. Throws what `kafka_nest-err` holds, {code, message, field}, where the
   * transaction is refused, and rxjs' TimeoutError when there is no answer in time: then take your own fallback action.
   */
  decide(transaction, patienceMs = 200) {
    const request = { key: transaction.user_id, value: transaction };
    return firstValueFrom(this.client.send(this.transactions, request).pipe(timeout(patienceMs)));
  }

  close() {
    return this.client.close();
  }
}

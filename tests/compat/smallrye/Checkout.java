import static java.nio.charset.StandardCharsets.UTF_8;

import io.smallrye.common.annotation.Identifier;
import io.smallrye.mutiny.Uni;
import io.smallrye.reactive.messaging.kafka.KafkaRecord;
import io.smallrye.reactive.messaging.kafka.reply.KafkaRequestReply;
import io.smallrye.reactive.messaging.kafka.reply.ReplyFailureHandler;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.inject.Inject;
import org.eclipse.microprofile.reactive.messaging.Channel;
import org.eclipse.microprofile.reactive.messaging.Message;
import org.eclipse.microprofile.reactive.messaging.OnOverflow;

/** Asks Assay what to do with a payment. Transactions and decisions are JSON. */
@ApplicationScoped
public class Checkout {

    @Inject
    @Channel("transactions")
    @OnOverflow(value = OnOverflow.Strategy.BUFFER, bufferSize = 1000)
    KafkaRequestReply<String, String> assay;

    /** A reply to the first request must not be missed. */
    public void start() {
        assay.waitForAssignments().await().indefinitely();
    }

    /** Fails with KafkaRequestReplyTimeoutException when there is no answer in time: then take your own fallback action. */
    public Uni<String> decide(String userId, String transaction) {
        return assay.request(KafkaRecord.of(userId, transaction)).map(Message::getPayload);
    }

    /** The transaction is not one: the message is {"code", "message", "field"}. */
    public static class Refused extends RuntimeException {
        Refused(String error) {
            super(error);
        }
    }

    /** Named by `reply.failure.handler`. Without it, a refusal reads as a review of the tier `refused`. */
    @ApplicationScoped
    @Identifier("assay")
    public static class Refusals implements ReplyFailureHandler {
        @Override
        public Throwable handleReply(KafkaRecord<?, ?> reply) {
            var error = reply.getHeaders().lastHeader("kafka_nest-err");
            return error == null ? null : new Refused(new String(error.value(), UTF_8));
        }
    }
}

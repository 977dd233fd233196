import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.serializer.JacksonJsonDeserializer;
import org.springframework.kafka.support.serializer.JacksonJsonSerializer;

/** Asks Assay what to do with a payment. */
public class Checkout implements AutoCloseable {

    /** Approve, review or decline. A reader takes an action that it does not know for a review. */
    public record Decision(
            @JsonProperty("transaction_id") String transactionId,
            @JsonProperty("user_id") String userId,
            @JsonProperty("action") String action,
            @JsonProperty("fraud_score") Double fraudScore,
            @JsonProperty("tier") String tier) {}

    /** The transaction is not one: the code is stable, the message names the field and what was expected. */
    public static class Refused extends RuntimeException {
        public final String code;

        Refused(String code, String error) {
            super(error);
            this.code = code;
        }
    }

    private final String transactions;
    private final ReplyingKafkaTemplate<String, Object, Decision> template;

    /** Where replies come to decides `replies`: see Replies. */
    public Checkout(String bootstrap, String transactions, ContainerProperties replies) {
        this.transactions = transactions;
        var producer = new DefaultKafkaProducerFactory<String, Object>(
                Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap),
                new StringSerializer(),
                new JacksonJsonSerializer<Object>().noTypeInfo());
        var consumer = new DefaultKafkaConsumerFactory<String, Decision>(
                Map.of(
                        ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
                        ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "latest"),
                new StringDeserializer(),
                new JacksonJsonDeserializer<>(Decision.class, false)); // replies carry no __TypeId__
        template = new ReplyingKafkaTemplate<>(producer, new KafkaMessageListenerContainer<>(consumer, replies));
        template.setReplyErrorChecker(Checkout::refusal);
    }

    /** Without it, a refusal reads as a review of the tier `refused`. */
    static Exception refusal(ConsumerRecord<?, ?> reply) {
        var code = reply.headers().lastHeader("assay-error");
        var error = reply.headers().lastHeader("kafka_nest-err");
        return code == null ? null : new Refused(new String(code.value(), UTF_8), new String(error.value(), UTF_8));
    }

    /** For options of the template that have to be set before it starts. */
    public ReplyingKafkaTemplate<String, Object, Decision> template() {
        return template;
    }

    public void start() throws InterruptedException {
        template.afterPropertiesSet();
        template.start();
        template.waitForAssignment(Duration.ofSeconds(30)); // a reply to the first request must not be missed
    }

    /** Ends with KafkaReplyTimeoutException when there is no answer in time: then take your own fallback action. */
    public CompletableFuture<Decision> decide(String userId, Object transaction, Duration patience) {
        var request = new ProducerRecord<String, Object>(transactions, userId, transaction);
        return template.sendAndReceive(request, patience).thenApply(ConsumerRecord::value);
    }

    @Override
    public void close() throws Exception {
        template.destroy();
    }
}

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.springframework.kafka.support.TopicPartitionOffset;
import tools.jackson.databind.json.JsonMapper;

/** Asks about every transaction on stdin at once, and writes what each call ended with: one JSON object a line. */
public class Ask {
    static final JsonMapper JSON = new JsonMapper();
    static final Duration PATIENCE = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], transactions = arguments[1], topic = arguments[2], way = arguments[3];
        var instances = new ArrayList<Checkout>();
        for (int i = 0; i < 2; i++) {
            boolean shared = way.contains("shared");
            var replies = shared ? Replies.sharedTopic(topic, "instance-" + i) : Replies.ownPartition(topic, i + 1);
            var checkout = new Checkout(bootstrap, transactions, replies);
            checkout.template().setSharedReplyTopic(shared);
            checkout.template().setBinaryCorrelation(!way.contains("text"));
            if (way.contains("unchecked")) {
                checkout.template().setReplyErrorChecker(reply -> null);
            }
            instances.add(checkout);
        }
        for (var checkout : instances) {
            checkout.start();
        }
        var lines = new String(System.in.readAllBytes(), "UTF-8").lines().toList();
        List<CompletableFuture<Map<String, Object>>> asked = new ArrayList<>();
        for (int i = 0; i < lines.size(); i++) {
            Map<?, ?> transaction = JSON.readValue(lines.get(i), Map.class);
            String id = (String) transaction.get("transaction_id");
            asked.add(instances.get(i % 2)
                    .decide((String) transaction.get("user_id"), transaction, PATIENCE)
                    .handle((decision, failure) -> line(id, decision, failure)));
        }
        for (var one : asked) {
            System.out.println(JSON.writeValueAsString(one.get()));
        }
        for (var checkout : instances) {
            checkout.close();
        }
        System.exit(0);
    }

    static Map<String, Object> line(String id, Checkout.Decision decision, Throwable failure) {
        var cause = failure instanceof CompletionException ? failure.getCause() : failure;
        if (cause instanceof Checkout.Refused refused) {
            return Map.of("asked", id, "error", JSON.readValue(refused.getMessage(), Map.class));
        }
        return cause == null ? Map.of("asked", id, "answer", decision) : Map.of("asked", id, "failed", cause.toString());
    }
}

import io.smallrye.config.SmallRyeConfigBuilder;
import io.vertx.core.json.JsonObject;
import java.io.FileReader;
import java.util.ArrayList;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.eclipse.microprofile.config.spi.ConfigProviderResolver;
import org.jboss.weld.environment.se.Weld;

/** Asks about every transaction on stdin at once, and writes what each call ended with: one JSON object a line. */
public class Ask {
    static final String CHANNEL = "mp.messaging.outgoing.transactions.";

    public static void main(String[] arguments) throws Exception {
        var channel = new Properties();
        try (var file = new FileReader(arguments[3])) {
            channel.load(file);
        }
        channel.forEach((name, value) -> System.setProperty((String) name, (String) value));
        System.setProperty(CHANNEL + "bootstrap.servers", arguments[0]);
        System.setProperty(CHANNEL + "topic", arguments[1]);
        System.setProperty(CHANNEL + "reply.topic", arguments[2]);
        System.setProperty(CHANNEL + "reply.timeout", "60000");
        // Known before the container starts: which of its extensions asks for it first is left to chance.
        var config = new SmallRyeConfigBuilder().addDefaultSources().build();
        ConfigProviderResolver.instance().registerConfig(config, Ask.class.getClassLoader());
        var checkout = new Weld().initialize().select(Checkout.class).get();
        checkout.start();
        var lines = new String(System.in.readAllBytes(), "UTF-8").lines().toList();
        var asked = new ArrayList<CompletableFuture<JsonObject>>();
        for (var line : lines) {
            var transaction = new JsonObject(line);
            var shown = new JsonObject().put("asked", transaction.getString("transaction_id"));
            asked.add(checkout.decide(transaction.getString("user_id"), line)
                    .subscribeAsCompletionStage()
                    .handle((decision, failure) -> shown.mergeIn(ended(decision, failure))));
        }
        for (var one : asked) {
            System.out.println(one.get().encode());
        }
        System.exit(0);
    }

    static JsonObject ended(String decision, Throwable failure) {
        var cause = failure instanceof CompletionException ? failure.getCause() : failure;
        if (cause instanceof Checkout.Refused refused) {
            return new JsonObject().put("error", new JsonObject(refused.getMessage()));
        }
        return cause == null
                ? new JsonObject().put("answer", new JsonObject(decision))
                : new JsonObject().put("failed", cause.toString());
    }
}

import assay.v1.Decision;
import assay.v1.ErrorReply;
import assay.v1.Transaction;
import com.google.protobuf.InvalidProtocolBufferException;
import java.math.BigDecimal;
import java.time.OffsetDateTime;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

/** Payments and decisions in Protobuf, for any client of Kafka: the serialisers, and what a request needs besides. */
public class Payments {

    public static final Serializer<Transaction> SERIALIZER = (topic, transaction) -> transaction.toByteArray();

    /** Of a refusal, too: read as a decision it is a review of the tier `refused`. */
    public static final Deserializer<Decision> DESERIALIZER = (topic, value) -> {
        try {
            return Decision.parseFrom(value);
        } catch (InvalidProtocolBufferException broken) {
            throw new SerializationException(broken);
        }
    };

    /** The amount keeps its digits, the moment its offset. */
    public static Transaction card(String id, String user, BigDecimal amount, String currency, OffsetDateTime at, String merchant) {
        return Transaction.newBuilder()
                .setTransactionId(id)
                .setUserId(user)
                .setAmount(amount.toPlainString())
                .setCurrency(currency)
                .setTimestamp(at.toString())
                .setMerchant(Transaction.Merchant.newBuilder().setId(merchant))
                .putAttributes("basket", Transaction.Scalar.newBuilder().setInteger(3).build())
                .build();
    }

    /** To be sent with Spring's `sendAndReceive`, or with the headers `reply-to` and `correlation-id`. */
    public static ProducerRecord<String, Transaction> request(String topic, Transaction transaction) {
        var request = new ProducerRecord<>(topic, transaction.getUserId(), transaction);
        request.headers().add("content-type", "application/protobuf".getBytes());
        return request;
    }

    /** Why a request was refused, where its reply has the header `assay-error`. */
    public static ErrorReply.ErrorDetail refusal(byte[] value) throws InvalidProtocolBufferException {
        return ErrorReply.parseFrom(value).getError();
    }
}

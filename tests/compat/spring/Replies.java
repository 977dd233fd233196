import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.support.TopicPartitionOffset;
import org.springframework.kafka.support.TopicPartitionOffset.SeekPosition;

/** Two ways for several instances to find their own replies. */
public class Replies {

    /** A partition for each instance: nobody reads another's replies. */
    public static ContainerProperties ownPartition(String topic, int partition) {
        var replies = new ContainerProperties(new TopicPartitionOffset(topic, partition, SeekPosition.END));
        replies.setGroupId(topic + "-" + partition);
        replies.setPollTimeout(250); // start() waits until the first poll has ended; by default that takes five seconds
        return replies;
    }

    /** A group for each instance, which sees all replies; call `setSharedReplyTopic(true)` on the template. */
    public static ContainerProperties sharedTopic(String topic, String instance) {
        var replies = new ContainerProperties(topic);
        replies.setGroupId(topic + "-" + instance);
        return replies;
    }
}

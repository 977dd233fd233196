import java.math.BigDecimal;
import java.time.OffsetDateTime;
import java.util.Base64;

/** Writes a payment, and reads the decision and the refusal that it is given; values are in base64. */
public class Try {
    public static void main(String[] replies) throws Exception {
        var at = OffsetDateTime.parse("2026-03-01T12:00:00.250+01:00");
        var payment = Payments.card("t-1", "u-1", new BigDecimal("129.90"), "EUR", at, "m-1");
        var request = Payments.request("transactions", payment);
        System.out.println(request.key());
        System.out.println(new String(request.headers().lastHeader("content-type").value()));
        System.out.println(Base64.getEncoder().encodeToString(Payments.SERIALIZER.serialize("transactions", request.value())));
        for (var reply : replies) {
            var value = Base64.getDecoder().decode(reply);
            var decision = Payments.DESERIALIZER.deserialize("shop.reply", value);
            System.out.println(decision.getAction() + " " + decision.getTier() + " " + Payments.refusal(value).getCode());
        }
    }
}

//! Tables `[kafka.NAME]`: a topic of Kafka.

use toml::Spanned;

use super::document::{Kafka, Sasl};
use super::{Address, Checker, Kind};
use crate::kafka::{Codec, KafkaSettings, Mechanism, SaslSettings};
use crate::secret_file::is_line;

/// Most brokers that are asked: the first one that answers tells the others.
const MAX_BROKERS: usize = 16;
/// Longest name of a topic.
const MAX_TOPIC: usize = 249;

impl Checker<'_> {
    pub(super) fn kafka(&mut self, kafka: Kafka) -> Kind {
        let brokers = kafka.brokers.get_ref();
        if brokers.is_empty() || brokers.len() > MAX_BROKERS {
            self.mistake(
                kafka.brokers.span(),
                format!("`brokers` has {} addresses", brokers.len()),
                "write one to 16 brokers, for example `[\"kafka1.example:9092\"]`; they name the others",
            );
        }
        let brokers: Vec<Address> = brokers.iter().map(|broker| self.address(broker)).collect();
        self.topic(&kafka.topic);
        if let Some(tls) = &kafka.tls
            && let Some(name) = &tls.server_name
        {
            self.mistake(
                name.span(),
                "`server_name` cannot be set for several brokers",
                "remove it: the certificate of a broker has the name of its address (`advertised.listeners`)",
            );
        }
        let has_tls = kafka.tls.is_some();
        let tls = kafka.tls.map(|tls| {
            let first = brokers.first().cloned().unwrap_or_default();
            self.tls(tls, &first)
        });
        Kind::Kafka(KafkaSettings {
            brokers: brokers.into_iter().map(|broker| broker.text).collect(),
            topic: kafka.topic.into_inner(),
            codec: kafka.compression.unwrap_or(Codec::Zstd),
            timeout: self.timeout(kafka.timeout.as_ref()),
            tls,
            sasl: kafka.sasl.map(|sasl| self.sasl(sasl, has_tls)),
        })
    }

    fn topic(&mut self, topic: &Spanned<String>) {
        let text = topic.get_ref();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_topic = (1..=MAX_TOPIC).contains(&text.len())
            && text.bytes().all(is_plain)
            && !matches!(text.as_str(), "." | "..");
        if !is_topic {
            self.mistake(
                topic.span(),
                format!("`{}` is no topic", text.escape_debug()),
                "use at most 249 letters, digits, `.`, `_` and `-`",
            );
        }
    }

    fn sasl(&mut self, sasl: Sasl, has_tls: bool) -> SaslSettings {
        let (file, user) = (&sasl.password_file, &sasl.user);
        self.mistakes.absolute(file.get_ref(), file.span());
        if !is_line(user.get_ref()) {
            let message = format!("`{}` is no user", user.get_ref().escape_debug());
            self.mistake(user.span(), message, "write one line of ASCII");
        }
        if *sasl.mechanism.get_ref() == Mechanism::Plain && !has_tls {
            self.mistake(
                sasl.mechanism.span(),
                "`PLAIN` without TLS shows the password to the network",
                "add a table `tls`, or use `SCRAM-SHA-512`",
            );
        }
        SaslSettings {
            mechanism: sasl.mechanism.into_inner(),
            user: sasl.user.into_inner(),
            password_file: sasl.password_file.into_inner(),
        }
    }
}

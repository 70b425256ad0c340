//! The messages of SCRAM: the client proves that it has the password, without telling it, and so does the server.
//!
//! # Source
//! RFC 5802, section 3 and 5; RFC 7677.

use std::fmt::Write as _;
use std::num::NonZeroU32;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac, pbkdf2};

/// Rounds of the hash that a server may ask for: RFC 7677 wants as many at least, and more cost time.
const ROUNDS: std::ops::RangeInclusive<u32> = 4096..=1_000_000;
/// No channel is bound.
const NO_BINDING: &str = "n,,";

/// A hash and what is made of it.
pub(super) struct Algorithm {
    digest: &'static digest::Algorithm,
    hmac: hmac::Algorithm,
    pbkdf2: pbkdf2::Algorithm,
}

pub(super) static SHA_256: Algorithm = Algorithm {
    digest: &digest::SHA256,
    hmac: hmac::HMAC_SHA256,
    pbkdf2: pbkdf2::PBKDF2_HMAC_SHA256,
};
pub(super) static SHA_512: Algorithm = Algorithm {
    digest: &digest::SHA512,
    hmac: hmac::HMAC_SHA512,
    pbkdf2: pbkdf2::PBKDF2_HMAC_SHA512,
};

/// A text that nobody can foresee.
///
/// # Errors
/// The kernel has no random bytes.
pub(super) fn nonce() -> anyhow::Result<String> {
    let mut bytes = [0; 24];
    let filled = SystemRandom::new().fill(&mut bytes).ok();
    filled.context("no random bytes")?;
    Ok(STANDARD.encode(bytes))
}

/// The begin of an exchange.
pub(super) struct Scram {
    algorithm: &'static Algorithm,
    nonce: String,
    /// The first message without its head.
    bare: String,
}

/// The answer to a challenge.
pub(super) struct Proof {
    pub(super) message: String,
    /// What a server that has the password answers.
    expected: Vec<u8>,
}

impl Scram {
    pub(super) fn new(algorithm: &'static Algorithm, user: &str, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Self {
            algorithm,
            bare: format!("n={user},r={nonce}"),
            nonce,
        }
    }

    /// The first message.
    pub(super) fn first(&self) -> String {
        format!("{NO_BINDING}{}", self.bare)
    }

    /// Answers the challenge of a server.
    ///
    /// # Errors
    /// It is none, or asks for too few or too many rounds.
    pub(super) fn prove(&self, password: &str, challenge: &str) -> anyhow::Result<Proof> {
        let mut parts = challenge.split(',');
        let mut part = |name: &str| {
            let part = parts.next().and_then(|part| part.strip_prefix(name));
            part.context("its challenge is none of SCRAM")
        };
        let (nonce, salt, rounds) = (part("r=")?, part("s=")?, part("i=")?);
        ensure!(
            nonce.starts_with(&self.nonce),
            "its challenge is for another exchange"
        );
        let salt = STANDARD.decode(salt).ok();
        let salt = salt.context("its challenge is none of SCRAM")?;
        let rounds = rounds.parse().ok().filter(|rounds| ROUNDS.contains(rounds));
        let rounds = rounds.and_then(NonZeroU32::new).with_context(|| {
            let (least, most) = ROUNDS.into_inner();
            format!("it asks for a number of rounds that is not from {least} to {most}")
        })?;
        let Algorithm { digest, hmac, .. } = *self.algorithm;
        let mut salted = vec![0; digest.output_len()];
        let secret = password.as_bytes();
        pbkdf2::derive(self.algorithm.pbkdf2, rounds, &salt, secret, &mut salted);
        let sign = |key: &[u8], text: &str| {
            let key = hmac::Key::new(hmac, key);
            hmac::sign(&key, text.as_bytes())
        };
        let client_key = sign(&salted, "Client Key");
        let stored_key = digest::digest(digest, client_key.as_ref());
        let mut message = format!("c={},r={nonce}", STANDARD.encode(NO_BINDING));
        let all = format!("{},{challenge},{message}", self.bare);
        let signature = sign(stored_key.as_ref(), &all);
        let both = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = both.map(|(one, other)| one ^ other).collect();
        // Writing to a string cannot fail.
        let _written = write!(message, ",p={}", STANDARD.encode(proof));
        let server_key = sign(&salted, "Server Key");
        let expected = sign(server_key.as_ref(), &all).as_ref().to_vec();
        Ok(Proof { message, expected })
    }
}

impl Proof {
    /// Checks that the server has the password, too.
    ///
    /// # Errors
    /// It has not.
    pub(super) fn check(&self, last: &str) -> anyhow::Result<()> {
        let signature = last.strip_prefix("v=").map(|text| STANDARD.decode(text));
        ensure!(
            matches!(signature, Some(Ok(signature)) if signature == self.expected),
            "it does not know the password of the user: it is not the broker that it claims to be"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    #[test]
    fn exchange_is_that_of_the_rfc() {
        let scram = Scram::new(&SHA_256, "user", "rOprNGfwEbeRWgbNEkqO".to_owned());
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let challenge = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let proof = scram.prove("pencil", &challenge).unwrap();
        assert_eq!(
            proof.message,
            format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
        );
        proof
            .check("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
            .unwrap();
        for wrong in ["", "v=", "v=6rriTRBi", "e=other-error"] {
            proof.check(wrong).unwrap_err();
        }
    }

    #[test]
    fn challenges_that_are_none_or_weak_are_refused() {
        let scram = Scram::new(&SHA_512, "a,b=c", "abc".to_owned());
        assert_eq!(scram.first(), "n,,n=a=2Cb=3Dc,r=abc");
        scram.prove("p", "r=abcd,s=YQ==,i=4096").unwrap();
        for (challenge, expected) in [
            ("", "none of SCRAM"),
            ("r=abcd,s=!,i=4096", "none of SCRAM"),
            ("r=abd,s=YQ==,i=4096", "another exchange"),
            ("r=abcd,s=YQ==,i=1", "4096"),
            ("r=abcd,s=YQ==,i=4294967295", "1000000"),
        ] {
            let error = scram.prove("p", challenge).err().unwrap();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}

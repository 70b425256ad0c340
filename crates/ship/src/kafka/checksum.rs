//! CRC-32C, eight bytes at a time.
//!
//! # Source
//! RFC 3720, section 12.1 and appendix B.4; Kounavis and Berry, "Novel Table Lookup-Based Algorithms for High-Performance
//! CRC Generation" (slicing by eight).

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte: u32 = 0;
    while byte < 256 {
        let mut sum = byte;
        let mut bit = 0;
        while bit < 8 {
            let low = if sum & 1 == 1 { POLYNOMIAL } else { 0 };
            sum = (sum >> 1) ^ low;
            bit += 1;
        }
        tables[0][byte as usize] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let [t0, t1, t2, t3, t4, t5, t6, t7] = &TABLES;
    let of = |table: &[u32; 256], byte: u8| table.get(usize::from(byte)).copied().unwrap_or(0);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = !0_u32;
    for &[a, b, c, d, e, f, g, h] in words {
        let [s0, s1, s2, s3] = sum.to_le_bytes();
        sum = of(t7, a ^ s0)
            ^ of(t6, b ^ s1)
            ^ of(t5, c ^ s2)
            ^ of(t4, d ^ s3)
            ^ of(t3, e)
            ^ of(t2, f)
            ^ of(t1, g)
            ^ of(t0, h);
    }
    for &byte in rest {
        let [low, ..] = sum.to_le_bytes();
        sum = (sum >> 8) ^ of(t0, low ^ byte);
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_rfc() {
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, expected) in [
            (&b""[..], 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
        ] {
            assert_eq!(crc32c(bytes), expected, "{bytes:?}");
        }
    }
}

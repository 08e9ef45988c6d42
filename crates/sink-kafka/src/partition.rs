//! The partition of a message, as the Java client's own partitioner chooses it, so that
//! rows that others write with the same keys land beside ours.

/// 32-bit MurmurHash2 with the seed of Kafka's clients
/// (`org.apache.kafka.common.utils.Utils.murmur2`; the algorithm is Austin Appleby's).
pub(crate) fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // The algorithm takes the length modulo 2^32.
    let mut hash = SEED ^ (bytes.len() as u32);
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        k = k.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (at, &byte) in rest.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// A partition below `partitions`; 0 if there are none.
pub(crate) const fn spread(hash: u32, partitions: u32) -> u32 {
    match (hash & 0x7fff_ffff).checked_rem(partitions) {
        Some(partition) => partition,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values that Kafka's clients agree on.
    #[test]
    fn hashes_are_those_of_the_java_client() {
        let known: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        for (text, hash) in known {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn partitions_are_below_their_number() {
        for hash in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            for partitions in 1..50 {
                assert!(spread(hash, partitions) < partitions);
            }
            assert_eq!(spread(hash, 0), 0);
        }
    }

    #[test]
    fn consecutive_keys_are_spread_evenly() {
        let mut counts = [0_u32; 3];
        for id in 0..30_000 {
            let key = format!("[\"{id}\"]");
            counts[spread(murmur2(key.as_bytes()), 3) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (9_500..10_500).contains(count)),
            "{counts:?}"
        );
    }

    proptest! {
        /// Every byte counts, those behind the last four too.
        #[test]
        fn one_changed_byte_changes_the_hash(bytes in proptest::collection::vec(any::<u8>(), 1..20), at: prop::sample::Index, bits in 1_u8..) {
            let mut changed = bytes.clone();
            changed[at.index(bytes.len())] ^= bits;
            prop_assert_ne!(murmur2(&bytes), murmur2(&changed));
        }
    }
}

//! Hash slots: keys of one slot are on one server.

/// Number of slots.
pub(crate) const SLOTS: usize = 16_384;

/// The slot of a key: CRC-16 (XMODEM) of the tag in braces, or of the whole key without one. Redis, "Redis cluster
/// specification".
pub(crate) fn slot_of(key: &str) -> usize {
    let tag = key.split_once('{').and_then(|(_, rest)| {
        let (tag, _) = rest.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    });
    usize::from(crc16(tag.unwrap_or(key).as_bytes())) % SLOTS
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let first = (crc >> 8) as u8 ^ byte;
        (crc << 8) ^ OF_BYTE[usize::from(first)]
    })
}

/// The CRC of each byte.
const OF_BYTE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc = (crc << 1) ^ if carry { 0x1021 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_server() {
        // As `CLUSTER KEYSLOT` answers.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(
            slot_of("{user1000}.following"),
            slot_of("{user1000}.followers")
        );
        assert_eq!(
            slot_of("foo{}{bar}"),
            usize::from(crc16(b"foo{}{bar}")) % SLOTS
        );
        assert_eq!(
            slot_of("foo{{bar}}zap"),
            usize::from(crc16(b"{bar")) % SLOTS
        );
    }
}

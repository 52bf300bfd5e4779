//! Addresses as Java writes them, and as ZooKeeper reads them in access control lists.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Writes an address as Java does, with all eight numbers if it is an IPv6 address.
pub(crate) fn written(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => ip
            .segments()
            .map(|segment| format!("{segment:x}"))
            .join(":"),
    }
}

/// Writes an address with its port, as Java does.
pub(crate) fn with_port(address: SocketAddr) -> String {
    let (host, port) = (written(address.ip()), address.port());
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// An address, as a number of 32 or 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    number: u128,
    width: u32,
}

/// Addresses with a common prefix, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: Address,
    /// The length of the prefix in bits.
    bits: u32,
}

impl Network {
    /// Reads the id of an entry of the scheme `ip`; returns `None` if it is not valid.
    pub(crate) fn read(id: &str) -> Option<Self> {
        let (host, bits) = id
            .split_once('/')
            .map_or((id, None), |(host, bits)| (host, Some(bits)));
        let address = Address::read(host)?;
        let bits = bits.map_or(Some(address.width), |bits| number(bits, address.width))?;
        Some(Self { address, bits })
    }

    pub(crate) fn is_v6(self) -> bool {
        self.address.width == Ipv6Addr::BITS
    }

    /// Returns whether an address, as Java writes it, is one of these.
    pub(crate) fn has(self, address: &str) -> bool {
        Address::read(address)
            .filter(|address| address.width == self.address.width)
            .is_some_and(|address| {
                let differ = address.number ^ self.address.number;
                differ.checked_shr(address.width - self.bits).unwrap_or(0) == 0
            })
    }
}

impl Address {
    /// Reads an address as ZooKeeper does: its numbers may have signs, and in IPv4 leading zeros.
    fn read(text: &str) -> Option<Self> {
        if text.contains(':') {
            return Some(Self {
                number: v6(text)?,
                width: Ipv6Addr::BITS,
            });
        }
        let parts = text
            .split('.')
            .map(|part| number(part, 255))
            .collect::<Option<Vec<_>>>()?;
        let number = parts
            .iter()
            .fold(0, |address, part| address << 8 | u128::from(*part));
        (parts.len() == 4).then_some(Self { number, width: 32 })
    }
}

fn number(text: &str, most: u32) -> Option<u32> {
    let number = u32::try_from(text.parse::<i32>().ok()?).ok()?;
    (number <= most).then_some(number)
}

fn v6(text: &str) -> Option<u128> {
    const SEGMENTS: usize = 8;
    let (front, back) = match *text.split("::").collect::<Vec<_>>() {
        [whole] => (segments(whole)?, None),
        [front, back] => (segments(front)?, Some(segments(back)?)),
        _ => return None,
    };
    let left = SEGMENTS.checked_sub(front.len() + back.as_ref().map_or(0, Vec::len))?;
    // `::` stands for at least one zero.
    if (left == 0) != back.is_none() {
        return None;
    }
    let zeros = std::iter::repeat_n(0, left);
    let all = front
        .into_iter()
        .chain(zeros)
        .chain(back.into_iter().flatten());
    Some(all.fold(0, |address, segment| address << 16 | u128::from(segment)))
}

fn segments(text: &str) -> Option<Vec<u16>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.split(':').map(segment).collect()
}

/// Reads a number in hexadecimal digits. Of a negative one, Java takes the last 16 bits.
fn segment(text: &str) -> Option<u16> {
    let number = i32::from_str_radix(text, 16)
        .ok()
        .filter(|_| text.len() <= 4)?;
    u16::try_from(number & 0xffff).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_addresses_as_java_does() {
        for (address, text) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "0:0:0:0:0:0:0:1"),
            ("2001:db8::a:0:0f", "2001:db8:0:0:0:a:0:f"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(address.parse().map(written), Ok(text.to_owned()));
        }
        let address = |text: &str| text.parse().map(with_port);
        assert_eq!(address("127.0.0.1:2181"), Ok("127.0.0.1:2181".to_owned()));
        assert_eq!(
            address("[::1]:2181"),
            Ok("[0:0:0:0:0:0:0:1]:2181".to_owned())
        );
    }

    /// The results are those of `isValid` and `matches` of the class in ZooKeeper 3.9.6.
    #[test]
    fn parses_networks_as_zookeeper_does() {
        let valid = |id| Network::read(id).is_some();
        for id in [
            "::",
            "::1",
            "::1/+64",
            "1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7::",
            "::2:3:4:5:6:7:8",
            "+1::",
            "-1::",
            "FE80::A",
            "1:2:3:4:5:6:7:-1",
            "+127.0.0.1",
            "0127.0.0.01/8",
        ] {
            assert!(valid(id), "{id}");
        }
        for id in [
            "",
            "/",
            "x",
            "::1/129",
            "::1/",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7:8:9",
            "1::2:3:4:5:6:7:8",
            "1:::2",
            ":::",
            "1::2::3",
            "::ffff:127.0.0.1",
            "fe80::1%eth0",
            "12345::",
            "::G",
            "::1:",
            ":1::",
            "1.2.3",
            "-1.2.3.4",
            "1.2.3.4.5",
            "1.2.3.4:",
            "::1 ",
            "127.0.0.1/33",
            "+::1",
        ] {
            assert!(!valid(id), "{id}");
        }
        let has = |id, address| Network::read(id).is_some_and(|network| network.has(address));
        for id in ["::1", "::1/128", "::1/+64", "::/0", "0:0:0:0:0:0:0:1"] {
            assert!(has(id, "0:0:0:0:0:0:0:1") && !has(id, "127.0.0.1"), "{id}");
        }
        assert!(!has("::", "0:0:0:0:0:0:0:1") && !has("0.0.0.0/0", "0:0:0:0:0:0:0:1"));
        assert!(has("0.0.0.0/0", "127.0.0.1") && has("127.0.0.0/8", "127.0.0.1"));
        assert!(!has("128.0.0.0/8", "127.0.0.1") && !has("127.0.0.2", "127.0.0.1"));
    }
}

//! The addresses of this host, and which of them other hosts are told of.

use memonet_core::{Error, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address, and the network in which it is.
    pub network: Network,
}

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// Bits that all addresses of the network have in common.
    pub prefix: u8,
}

impl Network {
    /// Reads `10.1.0.0/16`; without a prefix, one address.
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(most);
        (prefix <= most).then_some(Network { address, prefix })
    }

    /// Whether an address lies in this network.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let (left, right, bits) = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return false,
        };
        // An empty prefix would shift by all bits of a number.
        (left ^ right).checked_shr(bits - u32::from(self.prefix)).unwrap_or(0) == 0
    }
}

/// All addresses of interfaces that are up.
///
/// # Errors
/// [`Error::System`].
pub fn interfaces() -> Result<Vec<Interface>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is a place for the pointer that the call gives.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(Error::System {
            call: "getifaddrs".into(),
            answer: std::io::Error::last_os_error(),
            hint: "memonet needs the list of network interfaces (netlink) to listen on them",
        });
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: `next` is null or an entry of the list, which is freed only below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if !is_up(entry.ifa_flags) {
            continue;
        }
        // SAFETY: both are null or addresses of the list, of the family that they name.
        let (address, mask) = unsafe { (ip(entry.ifa_addr), ip(entry.ifa_netmask)) };
        let Some(address) = address else { continue };
        // SAFETY: the name is a string of the list.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
        let prefix = match mask {
            Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
            Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
            None if address.is_ipv4() => 32,
            None => 128,
        };
        let network = Network { address, prefix: prefix as u8 };
        found.push(Interface { name: name.to_string_lossy().into_owned(), network });
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Whether an interface is switched on, and connected to something: bridges for containers often
/// are not.
fn is_up(flags: u32) -> bool {
    let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    flags & wanted == wanted
}

/// # Safety
/// `address` is null or points to a socket address that is as long as its family says.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the contract of this function.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family is a `sockaddr_in`.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is a `sockaddr_in6`.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// The addresses of a host that others are told of, at most `most`.
///
/// A wish, the name of an interface or a network, is followed. Without one these are all that are
/// neither of loopback nor of the link alone; where there are none, those of loopback, by which
/// agents on one machine reach each other.
pub(super) fn choose(
    all: &[Interface],
    wish: Option<&str>,
    first: Option<IpAddr>,
    most: usize,
) -> Result<Vec<IpAddr>> {
    let addresses = |is_wanted: &dyn Fn(&Interface) -> bool| -> Vec<IpAddr> {
        // A link-local address of IPv6 means nothing without an interface of the other host.
        let usable = all.iter().filter(|one| !is_link_of_v6(one.network.address));
        usable.filter(|one| is_wanted(one)).map(|one| one.network.address).collect()
    };
    let mut chosen = match wish {
        Some(wish) => {
            let network = Network::parse(wish);
            addresses(&|one| {
                one.name == wish || network.is_some_and(|net| net.contains(one.network.address))
            })
        }
        None => {
            let is_public = |one: &Interface| match one.network.address {
                IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
                IpAddr::V6(address) => !address.is_loopback(),
            };
            let public = addresses(&is_public);
            if public.is_empty() { addresses(&|_| true) } else { public }
        }
    };
    if chosen.is_empty() {
        let there: Vec<String> = all
            .iter()
            .map(|one| format!("{} {}/{}", one.name, one.network.address, one.network.prefix))
            .collect();
        let problem = match wish {
            Some(wish) => format!(
                "no interface of this host that is up has the name or an address in {wish:?}; there are {}. Give `--interface` a name or network that each host has",
                there.join(", ")
            ),
            None => "this host has no network address at all, not even loopback. Bring an interface up (`ip link set lo up`)".into(),
        };
        return Err(Error::Fabric { fabric: "tcp", problem, call: None });
    }
    chosen.sort_by_key(|&address| Some(address) != first);
    chosen.dedup();
    chosen.truncate(most);
    Ok(chosen)
}

fn is_link_of_v6(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(addresses: &[(&str, &str)]) -> Vec<Interface> {
        let interface = |&(name, network): &(&str, &str)| Interface {
            name: name.into(),
            network: Network::parse(network).unwrap(),
        };
        addresses.iter().map(interface).collect()
    }

    fn chosen(all: &[Interface], wish: Option<&str>, first: Option<&str>) -> Vec<String> {
        let first = first.map(|first| first.parse().unwrap());
        choose(all, wish, first, 9).unwrap().iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn what_other_hosts_reach_is_chosen() {
        let all = host(&[
            ("lo", "127.0.0.1/8"),
            ("eth0", "10.0.0.5/24"),
            ("eth1", "192.168.7.5/16"),
            ("eth2", "169.254.3.4/16"),
            ("lo", "::1/128"),
            ("eth0", "fe80::1/64"),
            ("eth0", "2001:db8::5/64"),
        ]);
        let public = ["10.0.0.5", "192.168.7.5", "2001:db8::5"];
        assert_eq!(chosen(&all, None, None), public);
        assert_eq!(
            chosen(&all, None, Some("192.168.7.5")),
            ["192.168.7.5", "10.0.0.5", "2001:db8::5"]
        );
        assert_eq!(chosen(&all, Some("eth0"), None), ["10.0.0.5", "2001:db8::5"]);
        assert_eq!(chosen(&all, Some("192.168.0.0/16"), None), ["192.168.7.5"]);
        assert_eq!(chosen(&all, Some("127.0.0.1"), None), ["127.0.0.1"]);
        assert_eq!(chosen(&all, Some("169.254.0.0/16"), None), ["169.254.3.4"]);
        assert_eq!(chosen(&all, Some("0.0.0.0/0"), None).len(), 4);
        assert_eq!(chosen(&all[..1], None, None), ["127.0.0.1"], "nothing else");
        assert_eq!(choose(&all, None, None, 1).unwrap().len(), 1);
        for wish in ["eth9", "10.0.1.0/24", "10.0.0.0/33", "::/129", "", "fe80::/10"] {
            let error = choose(&all, Some(wish), None, 9).unwrap_err().to_string();
            assert!(error.contains(wish) && error.contains("eth1 192.168.7.5/16"), "{error}");
        }
    }

    #[test]
    fn networks_contain_what_begins_alike() {
        let contains = |net: &str, address: &str| {
            Network::parse(net).unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("10.1.2.3/8", "10.9.9.9") && !contains("10.1.2.3/16", "10.9.9.9"));
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.2"));
        assert!(contains("fd00::1/64", "fd00::2") && !contains("fd00::1/64", "fd00:0:0:1::2"));
        assert!(contains("::/0", "fd00::2") && !contains("::/0", "1.2.3.4"));
    }

    #[test]
    fn this_host_has_loopback() {
        let all = interfaces().unwrap();
        let loopback = Network { address: Ipv4Addr::LOCALHOST.into(), prefix: 8 };
        assert!(all.iter().any(|one| one.network == loopback), "{all:?}");
    }
}

//! Which address of a node to try first.

use super::interfaces::Interface;
use std::net::SocketAddr;

/// The addresses of a node in the order in which to try them: the one that worked last, those of a
/// network that this host is in, the rest. Last comes what is an address of this host, too, such as
/// that of a bridge for containers, which many hosts have alike.
pub(super) fn order(
    addresses: &[SocketAddr],
    own: &[Interface],
    worked: Option<SocketAddr>,
) -> Vec<SocketAddr> {
    let class = |address: &SocketAddr| {
        if Some(*address) == worked {
            0
        } else if own.iter().any(|one| one.network.address == address.ip()) {
            3
        } else if own.iter().any(|one| one.network.contains(address.ip())) {
            1
        } else {
            2
        }
    };
    let mut addresses = addresses.to_vec();
    addresses.sort_by_key(class);
    addresses
}

#[cfg(test)]
mod tests {
    use super::super::interfaces::Network;
    use super::*;

    #[test]
    fn near_networks_come_first() {
        let own = [("10.0.0.5", 24), ("172.17.0.1", 16)].map(|(address, prefix)| Interface {
            name: "x".into(),
            network: Network { address: address.parse().unwrap(), prefix },
        });
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 4000);
        let all = ["172.17.0.1", "192.168.0.1", "10.0.0.7"].map(address);
        assert_eq!(order(&all, &own, None), [all[2], all[1], all[0]]);
        assert_eq!(order(&all, &own, Some(all[1])), [all[1], all[2], all[0]]);
        assert_eq!(order(&all, &[], None), all);
    }
}

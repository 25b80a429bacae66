//! Management packets: datagrams of 256 bytes, laid out as in the InfiniBand Architecture
//! Specification.

use super::directed::Route;
use crate::packet::Payload;

/// Bytes of a management datagram.
pub const DATAGRAM_BYTES: usize = 256;
/// The lane that carries nothing but subnet management.
pub const MANAGEMENT_LANE: u64 = 15;

/// Class: subnet management, to a place that has a local id.
pub const SUBNET: u8 = 0x01;
/// Class: subnet management by a directed route, along the cables that the datagram names.
pub const DIRECTED: u8 = 0x81;
/// Class: subnet administration, requests of nodes to the subnet manager, on an ordinary lane.
pub const ADMINISTRATION: u8 = 0x03;

/// Method: reads an attribute.
pub const GET: u8 = 0x01;
/// Method: writes an attribute.
pub const SET: u8 = 0x02;
/// Method of administration: deletes a record. It is not answered here.
pub const DELETE: u8 = 0x15;
/// Method: answers `GET` and `SET`.
pub const RESPONSE: u8 = 0x81;

/// Modifier of the response to a node that asks to join a group: the manager knows.
pub const NOTED: u32 = 1;

/// Attributes.
pub const NODE_INFO: u16 = 0x0011;
pub const SWITCH_INFO: u16 = 0x0012;
pub const PORT_INFO: u16 = 0x0015;
pub const FORWARDING_TABLE: u16 = 0x0019;
pub const MULTICAST_TABLE: u16 = 0x001b;
pub const MANAGER_INFO: u16 = 0x0020;
pub const MULTICAST_MEMBER: u16 = 0x0038;

/// Where a datagram's data begins, by class.
const SUBNET_DATA_OFFSET: usize = 64;
const ADMINISTRATION_DATA_OFFSET: usize = 56;
/// Length of the data of subnet management.
pub const DATA_BYTES: usize = 64;

/// Length of a group's global name, which begins a multicast member record.
pub const GROUP_NAME_BYTES: usize = 16;
/// Where a multicast member record has the group's local id.
const MEMBER_LID_OFFSET: usize = 36;

/// A management datagram, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    pub class: u8,
    pub method: u8,
    pub attribute: u16,
    /// Which part of the attribute: a block of a table.
    pub modifier: u32,
    /// The number by which the asker knows the response.
    pub transaction: u64,
    pub data: [u8; DATA_BYTES],
    /// Of class [`DIRECTED`].
    pub route: Route,
}

/// Who has answered a request for a NodeInfo, and by which of its ports the request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeInfo {
    pub is_switch: bool,
    pub ports: u8,
    /// The number of the node, or of the switch among switches.
    pub guid: u64,
    pub by: u8,
}

/// What a PortInfo of a place says to its agent, or of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortInfo {
    pub lid: u16,
    /// The local id of the node whose manager is the master.
    pub manager: u16,
    /// Whether there is a cable, and it carries something.
    pub is_up: bool,
    /// Has the node tell the manager its groups once more.
    pub tell_groups: bool,
}

const ACTIVE: u8 = 4;
const TELL_GROUPS: u8 = 0x80;
const STATE_CHANGED: u8 = 4;

impl Datagram {
    pub fn new(class: u8, method: u8, attribute: u16, modifier: u32, transaction: u64) -> Datagram {
        let (data, route) = ([0; DATA_BYTES], Route::default());
        Datagram { class, method, attribute, modifier, transaction, data, route }
    }

    /// The response to this datagram, with its data.
    pub fn response(&self) -> Datagram {
        Datagram { method: RESPONSE, ..self.clone() }
    }

    fn start(class: u8) -> usize {
        if class == ADMINISTRATION { ADMINISTRATION_DATA_OFFSET } else { SUBNET_DATA_OFFSET }
    }

    pub fn payload(&self) -> Payload {
        let mut bytes = [0; DATAGRAM_BYTES];
        bytes[0] = 1;
        bytes[1] = self.class;
        bytes[2] = 1;
        bytes[3] = self.method;
        bytes[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.modifier.to_be_bytes());
        bytes[Self::start(self.class)..][..DATA_BYTES].copy_from_slice(&self.data);
        if self.class == DIRECTED {
            self.route.write(&mut bytes);
        }
        Payload::copy(&bytes)
    }

    pub fn read(payload: &Payload) -> Datagram {
        assert_eq!(payload.len(), DATAGRAM_BYTES, "a management packet carries one datagram");
        payload.with(|bytes| Datagram {
            class: bytes[1],
            method: bytes[3],
            attribute: u16::from_be_bytes([bytes[16], bytes[17]]),
            modifier: u32::from_be_bytes(bytes[20..24].try_into().expect("4 bytes")),
            transaction: u64::from_be_bytes(bytes[8..16].try_into().expect("8 bytes")),
            data: bytes[Self::start(bytes[1])..][..DATA_BYTES].try_into().expect("64 bytes"),
            route: if bytes[1] == DIRECTED { Route::read(bytes) } else { Route::default() },
        })
    }

    pub fn node_info(&self) -> NodeInfo {
        NodeInfo {
            is_switch: self.data[2] == 2,
            ports: self.data[3],
            guid: u64::from_be_bytes(self.data[12..20].try_into().expect("8 bytes")),
            by: self.data[36],
        }
    }

    pub fn set_node_info(&mut self, info: NodeInfo) {
        self.data[2] = if info.is_switch { 2 } else { 1 };
        self.data[3] = info.ports;
        self.data[12..20].copy_from_slice(&info.guid.to_be_bytes());
        self.data[36] = info.by;
    }

    pub fn port_info(&self) -> PortInfo {
        PortInfo {
            lid: u16::from_be_bytes([self.data[16], self.data[17]]),
            manager: u16::from_be_bytes([self.data[18], self.data[19]]),
            is_up: self.data[32] == ACTIVE,
            tell_groups: self.data[51] & TELL_GROUPS != 0,
        }
    }

    pub fn set_port_info(&mut self, info: PortInfo) {
        self.data[16..18].copy_from_slice(&info.lid.to_be_bytes());
        self.data[18..20].copy_from_slice(&info.manager.to_be_bytes());
        self.data[32] = if info.is_up { ACTIVE } else { 1 };
        self.data[51] = if info.tell_groups { TELL_GROUPS } else { 0 };
    }

    /// Whether a SwitchInfo says that the state of a port has changed; one that is set clears it.
    pub fn has_changed(&self) -> bool {
        self.data[11] & STATE_CHANGED != 0
    }

    pub fn set_changed(&mut self, changed: bool) {
        self.data[11] = if changed { STATE_CHANGED } else { 0 };
    }

    /// The group of a multicast member record.
    pub fn group(&self) -> [u8; GROUP_NAME_BYTES] {
        self.data[..GROUP_NAME_BYTES].try_into().expect("16 bytes")
    }

    /// The group's local id in a multicast member record.
    pub fn group_lid(&self) -> u16 {
        u16::from_be_bytes([self.data[MEMBER_LID_OFFSET], self.data[MEMBER_LID_OFFSET + 1]])
    }

    pub fn set_group_lid(&mut self, lid: u16) {
        self.data[MEMBER_LID_OFFSET..MEMBER_LID_OFFSET + 2].copy_from_slice(&lid.to_be_bytes());
    }
}

/// A switch's multicast table: 16 bits for each group, one for each port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table(Box<[u8; TABLE_BYTES]>);

/// Bytes of a multicast table.
pub const TABLE_BYTES: usize = 512;
/// Number of groups of a block.
pub const BLOCK_GROUPS: u16 = (DATA_BYTES / 2) as u16;
/// Number of groups of the table.
pub const GROUPS: u16 = (TABLE_BYTES / 2) as u16;
/// Number of ports that the table can name.
pub const PORTS: u16 = 16;
/// Local id of the first group.
pub const FIRST_GROUP: u16 = 0xc000;

impl Default for Table {
    fn default() -> Self {
        Table(Box::new([0; TABLE_BYTES]))
    }
}

impl Table {
    /// A block of the table; nothing behind its end.
    pub fn block(&self, block: u32) -> Option<[u8; DATA_BYTES]> {
        let start = (block as usize).checked_mul(DATA_BYTES)?;
        self.0.get(start..start.checked_add(DATA_BYTES)?)?.try_into().ok()
    }

    /// Writes a block of the table. False behind its end.
    pub fn set_block(&mut self, block: u32, data: &[u8; DATA_BYTES]) -> bool {
        let Some(start) = (block as usize).checked_mul(DATA_BYTES) else {
            return false;
        };
        match self.0.get_mut(start..start.saturating_add(DATA_BYTES)) {
            Some(place) => place.copy_from_slice(data),
            None => return false,
        }
        true
    }

    /// The ports of a group, a bit each.
    pub fn ports(&self, group: u16) -> u16 {
        let place = 2 * usize::from(group - FIRST_GROUP);
        u16::from_be_bytes([self.0[place], self.0[place + 1]])
    }

    pub fn set_ports(&mut self, group: u16, ports: u16) {
        let place = 2 * usize::from(group - FIRST_GROUP);
        self.0[place..place + 2].copy_from_slice(&ports.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn datagrams_come_through(class in prop::sample::select(vec![SUBNET, DIRECTED, ADMINISTRATION]), method: u8, attribute: u16, modifier: u32, transaction: u64,
                                  bytes in prop::collection::vec(any::<u8>(), DATA_BYTES), ports in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut datagram = Datagram { data: bytes.try_into().unwrap(), ..Datagram::new(class, method, attribute, modifier, transaction) };
            if class == DIRECTED {
                datagram.route = Route::to(&ports).unwrap();
                for port in &ports {
                    datagram.route.step(Some(port ^ 1));
                }
            }
            prop_assert_eq!(Datagram::read(&datagram.payload()), datagram);
        }
    }

    #[test]
    fn a_table_has_eight_blocks() {
        let mut table = Table::default();
        assert!(table.set_block(7, &[0xff; DATA_BYTES]));
        assert!(!table.set_block(8, &[0xff; DATA_BYTES]));
        assert!(!table.set_block(u32::MAX, &[0xff; DATA_BYTES]));
        assert_eq!((table.ports(0xc0df), table.ports(0xc0e0)), (0, 0xffff));
        assert_eq!(table.block(8), None);
    }
}

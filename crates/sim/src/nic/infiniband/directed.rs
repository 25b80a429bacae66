//! Directed routes: a management datagram names the ports by which it goes on, one for each place
//! on its way, and notes those by which it came. So it gets to places without local ids, through
//! switches without tables, and its response gets back.

/// The most cables of a way: 64 bytes of a datagram, of which the first is not used.
pub const MOST_HOPS: usize = 63;
/// Where a datagram has the way out, and the way back.
const OUT_OFFSET: usize = 128;
const BACK_OFFSET: usize = 192;
/// Bit of the status that says that this goes back.
const RETURNS: u8 = 0x80;

/// The way of a datagram, and how far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    out: Vec<u8>,
    /// The ports by which the datagram came, one for each cable behind it.
    back: Vec<u8>,
    /// How many cables lie between the datagram and where it began.
    at: u8,
    returns: bool,
}

impl Route {
    /// The way by these ports. Nothing, if it is too long.
    pub fn to(ports: &[u8]) -> Option<Route> {
        (ports.len() <= MOST_HOPS).then(|| Route { out: ports.to_vec(), ..Route::default() })
    }

    /// The datagram is at a place, to which it came by this port, or where it begins. Returns the
    /// port by which it goes on; none where its way ends.
    pub fn step(&mut self, by: Option<u8>) -> Option<u8> {
        if self.returns {
            self.at = self.at.checked_sub(1)?;
            return self.back.get(usize::from(self.at)).copied();
        }
        self.back.extend(by);
        let port = self.out.get(usize::from(self.at)).copied();
        self.at += u8::from(port.is_some());
        port
    }

    /// The port by which the datagram came to where it is.
    pub fn came_by(&self) -> Option<u8> {
        self.back.last().copied()
    }

    /// The way of a response.
    pub fn turned(&self) -> Route {
        Route { returns: true, ..self.clone() }
    }

    pub fn write(&self, bytes: &mut [u8]) {
        bytes[4] = if self.returns { RETURNS } else { 0 };
        (bytes[5], bytes[6], bytes[7]) = (self.back.len() as u8, self.at, self.out.len() as u8);
        bytes[OUT_OFFSET + 1..][..self.out.len()].copy_from_slice(&self.out);
        bytes[BACK_OFFSET + 1..][..self.back.len()].copy_from_slice(&self.back);
    }

    pub fn read(bytes: &[u8]) -> Route {
        let ports = |offset: usize, len: u8| {
            bytes[offset + 1..][..usize::from(len).min(MOST_HOPS)].to_vec()
        };
        Route {
            out: ports(OUT_OFFSET, bytes[7]),
            back: ports(BACK_OFFSET, bytes[5]),
            at: bytes[6],
            returns: bytes[4] & RETURNS != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut route = Route::to(&[0, 3, 5]).unwrap();
        assert_eq!(
            [None, Some(7), Some(2), Some(1)].map(|by| route.step(by)),
            [Some(0), Some(3), Some(5), None]
        );
        assert_eq!(route.came_by(), Some(1));
        let mut back = route.turned();
        let steps: Vec<_> = std::iter::from_fn(|| back.step(None)).collect();
        assert_eq!(steps, [1, 2, 7]);
        assert_eq!(Route::to(&[0; 64]), None);
        assert_eq!(Route::to(&[]).unwrap().step(None), None);
    }
}

//! What the machine file says of the slot's signals *wait* and *interrupt*.

use crate::host::Sleep;
use crate::machine::{MachineError, Section};
use crate::time::Ps;

/// What the two signals take.
#[derive(Debug, Clone, Copy)]
pub struct Pemm {
    pub sleep: Sleep,
    /// The NIC makes an access wait while it turns a bank.
    pub bank_wait: Ps,
}

impl Pemm {
    /// The signals of this host's slot, if it has them.
    pub fn read(host: &Section<'_>) -> Result<Option<Pemm>, MachineError> {
        let choices = [("dimm", false), ("pemm", true)];
        if !host.has("interface") || !host.choice("interface", &choices)? {
            return Ok(None);
        }
        let sleep = Sleep {
            spin: host.time("spin")?,
            block: Ps::ZERO,
            interrupt: host.time("interrupt")?,
            context_switch: Ps::ZERO,
        };
        Ok(Some(Pemm { sleep, bank_wait: host.time("bank_wait")? }))
    }
}

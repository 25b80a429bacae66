//! Lines that a PMI-1 server sends: `cmd=NAME FIELD=VALUE ...`.

/// A server's answer.
pub(super) struct Answer<'a> {
    command: &'a str,
    fields: &'a str,
}

impl<'a> Answer<'a> {
    /// Reads a line without its end; or says what is wrong with it.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, &'static str> {
        let line = std::str::from_utf8(line).map_err(|_| "is not text")?;
        let rest = line.strip_prefix("cmd=").ok_or("does not begin with cmd=")?;
        let (command, fields) = rest.split_once(' ').unwrap_or((rest, ""));
        if command.is_empty() {
            return Err("names no command");
        }
        Ok(Answer { command, fields })
    }

    pub(super) fn command(&self) -> &'a str {
        self.command
    }

    /// The value of a field; an error where there are two of that name.
    pub(super) fn field(&self, name: &str) -> Result<Option<&'a str>, &'static str> {
        // Words without a `=` belong to a message.
        let pairs = self.fields.split(' ').filter_map(|word| word.split_once('='));
        let mut values = pairs.filter(|(field, _)| *field == name).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err("has a field twice"),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, &'static str> {
        let number = |text: &str| text.parse().map_err(|_| "has a field that is not a number");
        self.field(name)?.map(number).transpose()
    }

    /// Whether the server has done what it was asked for, where it says so.
    pub(super) fn is_success(&self) -> Result<Option<bool>, &'static str> {
        Ok(self.number("rc")?.map(|rc| rc == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_found() {
        let answer = Answer::parse(b"cmd=get_result rc=-1 msg=no such=key value=a=b").unwrap();
        assert_eq!(answer.command(), "get_result");
        assert_eq!(answer.number("rc"), Ok(Some(-1)));
        assert_eq!(answer.is_success(), Ok(Some(false)));
        assert_eq!(answer.field("value"), Ok(Some("a=b")));
        assert_eq!(answer.field("size"), Ok(None));
        assert!(answer.number("msg").is_err());
        assert!(Answer::parse(b"cmd=x rc=0 rc=0").unwrap().is_success().is_err());
        for wrong in [&b""[..], b"cmd=", b"mcmd=x", b" cmd=x", b"cmd=\xff"] {
            assert!(Answer::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_read_without_a_panic(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(answer) = Answer::parse(&line) {
                let _ = (answer.command(), answer.is_success(), answer.field("value"));
            }
        }
    }
}

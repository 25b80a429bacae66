//! Values that events name by number.

/// Numbered places for values. An empty place is used again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts a value in; returns its number.
    pub(crate) fn put(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = Some(thing);
                number
            }
            None => {
                self.places.push(Some(thing));
                u32::try_from(self.places.len() - 1).expect("fewer than 2^32 things at once")
            }
        }
    }

    /// Takes a value out.
    ///
    /// # Panics
    /// When no value has this number.
    pub(crate) fn take(&mut self, number: u32) -> T {
        let thing =
            self.places[number as usize].take().expect("an event names something that is there");
        self.free.push(number);
        thing
    }

    /// The value of a number.
    ///
    /// # Panics
    /// When no value has this number.
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        self.places[number as usize].as_mut().expect("an event names something that is there")
    }

    /// How many values are in the slab.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

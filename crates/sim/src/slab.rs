//! Things that events name by number.

/// Numbered places, used again when they are empty.
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

    /// # Panics
    /// When there is nothing of that number.
    pub(crate) fn take(&mut self, number: u32) -> T {
        let thing =
            self.places[number as usize].take().expect("an event names something that is there");
        self.free.push(number);
        thing
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        self.places[number as usize].as_mut().expect("an event names something that is there")
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

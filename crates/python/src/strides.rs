//! Copies between two arrays of one shape, each with strides of its own.

/// The shape of an array, and the distances of its elements, in bytes.
#[derive(Debug, Clone)]
pub struct Layout {
    pub shape: Vec<usize>,
    pub strides: Vec<isize>,
    /// Bytes of an element.
    pub size: usize,
}

impl Layout {
    /// An array without gaps, in the order of C.
    pub fn contiguous(shape: &[usize], size: usize) -> Self {
        let mut strides = vec![0; shape.len()];
        let mut step = size as isize;
        for (stride, &count) in strides.iter_mut().zip(shape).rev() {
            *stride = step;
            step *= count as isize;
        }
        Layout { shape: shape.to_vec(), strides, size }
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of the trailing dimensions that lie without gaps, and how many dimensions remain.
    fn run(&self, dimensions: usize) -> (usize, usize) {
        let (mut bytes, mut outer) = (self.size, dimensions);
        while outer > 0 && (self.strides[outer - 1] == bytes as isize || self.shape[outer - 1] == 1)
        {
            outer -= 1;
            bytes *= self.shape[outer];
        }
        (bytes, outer)
    }
}

/// Calls `copy` for each run of bytes that lies without gaps in both arrays: with the distances of
/// the two runs from the first elements, and the bytes of the run.
///
/// # Errors
/// The first error of `copy`, after which it is called no more.
pub fn each_run<E>(
    one: &Layout,
    other: &Layout,
    mut copy: impl FnMut(isize, isize, usize) -> Result<(), E>,
) -> Result<(), E> {
    assert_eq!((&one.shape, one.size), (&other.shape, other.size));
    if one.count() == 0 {
        return Ok(());
    }
    let (a, b) = (one.run(one.shape.len()), other.run(one.shape.len()));
    let (bytes, outer) = if a.1 > b.1 { a } else { b };
    let mut index = vec![0; outer];
    let (mut first, mut second) = (0, 0);
    loop {
        copy(first, second, bytes)?;
        let mut dimension = outer;
        loop {
            let Some(next) = dimension.checked_sub(1) else { return Ok(()) };
            dimension = next;
            index[dimension] += 1;
            first += one.strides[dimension];
            second += other.strides[dimension];
            if index[dimension] < one.shape[dimension] {
                break;
            }
            let count = one.shape[dimension] as isize;
            first -= count * one.strides[dimension];
            second -= count * other.strides[dimension];
            index[dimension] = 0;
        }
    }
}

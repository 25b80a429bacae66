"""python3 -m unittest discover tests/peers"""

import unittest

from parts import ABOUT, BEGIN, END, LOCKS, SIMULATED, STREAMS, between_marks, slices_of, table
from slices import Results, Row, Slice

NEAR, FAR = 77.0, 475.0


class Lines(unittest.TestCase):
    def test_slices_have_their_round_trips(self):
        found = slices_of("latency 2 ns 81.5 77.0 78.0\nlatency 2 ns 82 77 79\nnoise\n")
        self.assertEqual(found, {("latency", "ns"): [Slice(81.5, 77, 78), Slice(82, 77, 79)]})

    def test_simulated_times_have_none(self):
        self.assertEqual(slices_of("8 2 us 1.006 - -"), {("8", "us"): [Slice(1.006, None, None)]})


class Tables(unittest.TestCase):
    def cells(self, row, unit, **slices):
        results = Results()
        for library, some in slices.items():
            results.add(Row(row, 2), library, unit, some)
        return [line.split(" | ") for line in table(results)[2:]]

    def test_faster_is_above_one_in_either_kind_of_unit(self):
        slices = {"memonet": [Slice(20.0, NEAR, NEAR)] * 5, "pipe": [Slice(10.0, NEAR, NEAR)] * 5}
        (rate,) = self.cells("64_B_copied", "M/s", **slices)
        (time,) = self.cells("latency", "ns", **slices)
        self.assertEqual(rate[2:], ["77", "20", "pipe", "10", "2.00 |"])
        self.assertEqual(time[2:], ["77", "20", "pipe", "10", "0.50 |"])

    def test_only_one_placement_counts(self):
        both = [Slice(20.0, NEAR, NEAR)] * 6 + [Slice(2.0, FAR, FAR)] * 5
        (line,) = self.cells("latency", "ns", memonet=both, pipe=[Slice(30.0, NEAR, NEAR)] * 6)
        self.assertEqual(line[3:], ["20", "pipe", "30", "1.50 |"])

    def test_a_model_is_not_faster_than_another(self):
        one, other = [Slice(1.006, None, None)], [Slice(2.05, None, None)]
        (line,) = self.cells("8", "us", memonet=one, SMPI=other)
        self.assertEqual(line[2:], ["", "1.006", "SMPI", "2.05", "- |"])

    def test_a_rival_without_memonet_has_no_ratio(self):
        (line,) = self.cells("lock_alone", "M/s", pthread=[Slice(9.0, NEAR, NEAR)] * 5)
        self.assertEqual(line[3:], ["-", "pthread", "9", "- |"])

    def test_every_row_is_explained(self):
        for row in [*STREAMS, *LOCKS, *SIMULATED]:
            self.assertIn(row, [*ABOUT, "times"])


class Marks(unittest.TestCase):
    def test_the_part_comes_to_the_end_and_is_replaced_there(self):
        once = between_marks("# Title\n", "old\n")
        self.assertEqual(once, f"# Title\n\n{BEGIN}\nold\n{END}\n")
        again = between_marks(once + "more\n", "new\n")
        self.assertEqual(again, once.replace("old", "new") + "more\n")

    def test_half_a_pair_of_marks_is_an_error(self):
        for text in (BEGIN, END, f"{END}\n{BEGIN}"):
            with self.assertRaises(ValueError):
                between_marks(text, "part\n")


if __name__ == "__main__":
    unittest.main()

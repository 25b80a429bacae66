"""python3 -m unittest discover tests/peers"""

import random
import unittest

from slices import ANYWHERE, Placement, Results, Row, Slice, choose, placements

NEAR, FAR = 77.0, 475.0


def slices(trip, count, value=1.0):
    return [Slice(value, trip, trip)] * count


class Placements(unittest.TestCase):
    def test_two_places_are_told_apart_in_spite_of_noise(self):
        noise = random.Random(1)
        some = [Slice(1.0, *(trip * noise.uniform(0.95, 1.05) for _ in "ab")) for trip in [NEAR] * 100 + [FAR] * 50]
        first, second = placements(some)
        self.assertTrue(first.low < NEAR < first.high < second.low < FAR < second.high)

    def test_disturbances_are_no_place(self):
        disturbed = [Slice(1.0, NEAR, trip) for trip in (900.0, 3000.0, 70_000.0)]
        self.assertEqual(placements(slices(NEAR, 200) + disturbed), [Placement(NEAR, NEAR)])

    def test_the_edges_of_a_place_are_not_another(self):
        edges = slices(NEAR * 1.52, 10) + slices(NEAR * 0.99, 10)
        self.assertEqual(len(placements(slices(NEAR, 100) + slices(NEAR * 1.4, 50) + edges)), 1)

    def test_a_slice_belongs_where_it_began_and_ended(self):
        near = Placement(70, 90)
        self.assertTrue(near.holds(Slice(1.0, NEAR, NEAR)))
        self.assertFalse(near.holds(Slice(1.0, NEAR, FAR)))
        self.assertFalse(near.holds(Slice(1.0, FAR, NEAR)))

    def test_where_nothing_was_looked_at_all_is_one_place(self):
        shared = [Slice(1.0, None, None)]
        self.assertEqual(placements(shared), [ANYWHERE])
        self.assertTrue(Placement(70, 90).holds(shared[0]))


class Choice(unittest.TestCase):
    PLACES = [Placement(70, 90), Placement(450, 500)]

    def test_it_is_where_all_have_some(self):
        contenders = [slices(NEAR, 90) + slices(FAR, 10), slices(NEAR, 2) + slices(FAR, 12)]
        self.assertEqual(choose(self.PLACES, contenders), self.PLACES[1])

    def test_values_decide_nothing(self):
        for fast, slow in ((NEAR, FAR), (FAR, NEAR)):
            contenders = [slices(fast, 10, 1.0) + slices(slow, 11, 1000.0), slices(fast, 10, 500.0) + slices(slow, 11, 500.0)]
            self.assertTrue(choose(self.PLACES, contenders).holds(Slice(0.0, slow, slow)))


class Tables(unittest.TestCase):
    ROW = Row("barrier", 2)

    def results(self, *contenders):
        results = Results()
        for who, some in contenders:
            results.add(self.ROW, who, "ns", some)
        return results

    def test_only_like_is_compared(self):
        results = self.results(
            (("memonet", ""), slices(NEAR, 50, 50.0) + slices(FAR, 10, 300.0)),
            (("A", ""), slices(NEAR, 4, 90.0) + slices(FAR, 20, 600.0)))
        self.assertIn("| 475 | 300 | 600 | 2.00 |", results.table(["memonet", "A"], str)[-1])
        self.assertEqual(results.thrown_away(), (84, 54, 0))

    def test_each_library_has_its_best_setting(self):
        results = self.results(
            (("memonet", ""), slices(NEAR, 9, 50.0)), (("A", "slow"), slices(NEAR, 9, 90.0)), (("A", "fast"), slices(NEAR, 9, 40.0)))
        self.assertIn("| 50 | 40 | 0.80 |", results.table(["memonet", "A"], str)[-1])

    def test_what_there_is_of_the_limit(self):
        results = self.results((("memonet", ""), slices(NEAR, 9, 50.0)), (("raw", ""), slices(NEAR, 9, 40.0)))
        self.assertTrue(results.table(["memonet", "raw"], str)[-1].endswith("| 50 | 40 |  | 0.80 |"))

    def test_the_spread_is_of_the_limit_and_without_outliers(self):
        raw = [Slice(float(value), NEAR, NEAR) for value in [1, *range(250, 259), 9999]]
        results = self.results((("memonet", ""), slices(NEAR, 50, 50.0)), (("raw", ""), raw + slices(FAR, 9, 700.0)))
        self.assertEqual(results.spread(self.ROW), (250, 258))
        self.assertIsNone(results.spread(Row("another", 2)))

    def test_too_few_slices_are_no_figure(self):
        results = self.results((("memonet", ""), slices(NEAR, 50, 50.0)), (("A", ""), slices(NEAR, 4, 1.0) + slices(FAR, 4, 9.0)))
        self.assertIn("| 77 | 50 | - |  |", results.table(["memonet", "A"], str)[-1])
        self.assertEqual(results.lacking(5), {("A", ""): [self.ROW]})
        self.assertEqual(results.lacking(4), {})

    def test_a_change_in_a_slice_is_counted(self):
        results = self.results((("memonet", ""), slices(NEAR, 50) + slices(FAR, 20) + [Slice(1.0, NEAR, FAR)]))
        self.assertEqual(results.thrown_away(), (71, 20, 1))

    def test_rows_without_round_trips_lack_nothing(self):
        results = self.results((("memonet", ""), [Slice(3.0, None, None)]))
        self.assertEqual(results.lacking(9), {})
        self.assertIn("| barrier | 2 | ns |  | 3 |  |", results.table(["memonet"], str)[-1])


if __name__ == "__main__":
    unittest.main()

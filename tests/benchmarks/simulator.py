"""How the rendezvous grows with the nodes: `python -m tests.benchmarks.simulator`."""

import argparse

from tests.sim.scale import measure, slope, table

SIZES = (100, 1_000, 5_000, 10_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--tries", type=int, default=3, help="the quickest of so many counts")
    sizes = parser.parse_args()
    figures = [
        min((measure(n) for _ in range(sizes.tries)), key=lambda f: f.cpu_s) for n in sizes.sizes
    ]
    print(table(figures))
    if len(figures) > 1:
        exponent = slope(figures)
        print(f"\nCPU time ~ nodes^{exponent:.2f} (least squares on both logarithms)")


if __name__ == "__main__":
    main()

"""What the demo, the benchmarks and the tests share: a bucket, a slow link, a real dataset."""

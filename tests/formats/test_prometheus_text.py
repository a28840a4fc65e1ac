"""Metrics in Prometheus's text format."""

from corral.formats.prometheus_text import sum_metrics


def test_values_are_summed_over_labels_and_buckets_are_left_out() -> None:
    text = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a {b} c"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 4.0
vllm:time_to_first_token_seconds_bucket{le="0.1"} 99
vllm:time_to_first_token_seconds_sum{engine="0"} 1.5e-1
llamacpp:requests_deferred 2
with_time 7 1700000000000
broken
broken{
nothing {}
"""
    assert sum_metrics(text) == {
        "vllm:num_requests_running": 7.0,
        "vllm:time_to_first_token_seconds_sum": 0.15,
        "llamacpp:requests_deferred": 2.0,
        "with_time": 7.0,
    }

"""What Corral tells about itself: logs now; metrics and traces with the parts that have something to measure."""

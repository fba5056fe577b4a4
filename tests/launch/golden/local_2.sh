# specsample-humaneval: 2 processes, 4 devices each.
# PORT is a free one that is chosen when the job starts.
/venv/bin/python -m specsample.cli.main run --gin_file=configs/runs/humaneval.gin '--gin_bindings=OUTPUT_DIR = '"'"'gs://bucket/some where'"'"'' '--gin_bindings=PROMPT = '"'"'it\'"'"'s "a" $(touch x) `id` ; # {b} %TPU% \\ é: - !no'"'"'' --coordinator_address 127.0.0.1:PORT --process_count 2 --process_index 0 --host_devices 4 >>'out put/logs/worker-0.log' 2>&1 &
/venv/bin/python -m specsample.cli.main run --gin_file=configs/runs/humaneval.gin '--gin_bindings=OUTPUT_DIR = '"'"'gs://bucket/some where'"'"'' '--gin_bindings=PROMPT = '"'"'it\'"'"'s "a" $(touch x) `id` ; # {b} %TPU% \\ é: - !no'"'"'' --coordinator_address 127.0.0.1:PORT --process_count 2 --process_index 1 --host_devices 4 >>'out put/logs/worker-1.log' 2>&1 &
wait

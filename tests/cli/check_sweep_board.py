# SPDX-License-Identifier: MIT
#
# Loads the runs of a sweep through the backend of TensorBoard's HParams plugin: check_sweep_board.py DIR OPTION...
# All runs of runs.jsonl that have ended well must be there, with their metrics and the options that were swept.
import json, os, sys

from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

folder, options = sys.argv[1], sys.argv[2:]
multiplexer = plugin_event_multiplexer.EventMultiplexer()
multiplexer.AddRunsFromDirectory(folder)
multiplexer.Reload()
provider = data_provider.MultiplexerDataProvider(multiplexer, folder)
context = backend_context.Context(TBContext(logdir=folder, multiplexer=multiplexer, data_provider=provider))
request = RequestContext()
args = dict(hparams_run_to_tag_to_content=context.hparams_metadata(request, ""))
experiment = context.experiment_from_metadata(request, "", True, args["hparams_run_to_tag_to_content"],
                                              context.hparams_from_data_provider(request, "", None))
names = {info.name: info for info in experiment.hparam_infos}
metrics = [info.name.tag for info in experiment.metric_infos]
for option in options:
    assert option in names, f"{option} is not among the hyper-parameters {sorted(names)}"
ask = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=10000,
                                       allowed_statuses=[api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE,
                                                         api_pb2.STATUS_RUNNING, api_pb2.STATUS_UNKNOWN])
for info in experiment.metric_infos:
    ask.col_params.add(metric=info.name)
answer = list_session_groups.Handler(request, context, "", ask).run()
sessions = {s.name: (g, s) for g in answer.session_groups for s in g.sessions}
lines = [json.loads(line) for line in open(os.path.join(folder, "runs.jsonl"))]
runs = [line for line in lines if "repeat" in line and line["error"] is None]
for run in runs:
    name = os.path.basename(run["run"])
    assert name in sessions, f"run {name} is not there: {sorted(sessions)}"
    group, session = sessions[name]
    assert session.status == api_pb2.STATUS_SUCCESS, f"{name}: {session}"
    values = {m.name.tag: m.value for m in session.metric_values}
    assert "accuracy" in values and "loss" in values and "test_loss" in values, f"{name} has only {sorted(values)}"
    assert abs(values["accuracy"] - run["accuracy"]) < 1e-6, f"{name}: {values}"
    for option in options:
        value = group.hparams[option]
        shown = value.number_value if value.HasField("number_value") else value.string_value
        given = run["swept"].get(option)
        assert shown == run.get(option) or str(given) == str(shown) or given is None and shown == "none", \
            f"{name}: {option}: {shown}"
print(f"{len(runs)} runs with {len(names)} hyper-parameters and the metrics {', '.join(metrics)}")

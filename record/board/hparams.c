/* SPDX-License-Identifier: MIT
 *
 * The numbers of the fields are those of api.proto and plugin_data.proto of the HParams plugin, and
 * of google.protobuf.Value.
 */
#include "record/board/describe.h"

#define CONTENT_BYTES 8192

enum { DATA_EXPERIMENT = 2, DATA_START = 3, DATA_END = 4 };
enum { TYPE_STRING = 1, TYPE_FLOAT64 = 3 };
enum { EXPERIMENT_TIME = 3, EXPERIMENT_HPARAM = 4, EXPERIMENT_METRIC = 5 };
enum { VALUE_NUMBER = 2, VALUE_STRING = 3 };

static void write_content(struct vb_events *ev, double wall_s, const char *tag,
                          const struct vb_proto *content)
{
    vb_events_begin(ev, wall_s, 0);
    vb_events_plugin(ev, tag, "hparams", content);
    (void)vb_events_end(ev);
}

void vb_board_experiment(struct vb_events *ev, double wall_s, const struct vb_board_param *params,
                         int n_params, const char *const *metrics, int n_metrics)
{
    unsigned char bytes[CONTENT_BYTES];
    struct vb_proto p = {.bytes = bytes, .size = sizeof(bytes)};
    size_t experiment = vb_proto_begin(&p, DATA_EXPERIMENT), info, name;
    int i;

    vb_proto_double(&p, EXPERIMENT_TIME, wall_s);
    for (i = 0; i < n_params; i++) {
        info = vb_proto_begin(&p, EXPERIMENT_HPARAM);
        vb_proto_text(&p, 1, params[i].name);
        vb_proto_int(&p, 4, params[i].text[0] != '\0' ? TYPE_STRING : TYPE_FLOAT64);
        vb_proto_end(&p, info);
    }
    for (i = 0; i < n_metrics; i++) {
        info = vb_proto_begin(&p, EXPERIMENT_METRIC);
        name = vb_proto_begin(&p, 1);
        vb_proto_text(&p, 2, metrics[i]);
        vb_proto_end(&p, name);
        vb_proto_end(&p, info);
    }
    vb_proto_end(&p, experiment);
    write_content(ev, wall_s, "_hparams_/experiment", &p);
}

static void put_param(struct vb_proto *p, const struct vb_board_param *param)
{
    size_t entry = vb_proto_begin(p, 1), value;

    vb_proto_text(p, 1, param->name);
    value = vb_proto_begin(p, 2);
    if (param->text[0] != '\0')
        vb_proto_text(p, VALUE_STRING, param->text);
    else
        vb_proto_double(p, VALUE_NUMBER, param->number);
    vb_proto_end(p, value);
    vb_proto_end(p, entry);
}

void vb_board_session_begin(struct vb_events *ev, double wall_s,
                            const struct vb_board_param *params, int n_params)
{
    unsigned char bytes[CONTENT_BYTES];
    struct vb_proto p = {.bytes = bytes, .size = sizeof(bytes)};
    size_t start = vb_proto_begin(&p, DATA_START);
    int i;

    for (i = 0; i < n_params; i++)
        put_param(&p, &params[i]);
    vb_proto_double(&p, 5, wall_s);
    vb_proto_end(&p, start);
    write_content(ev, wall_s, "_hparams_/session_start_info", &p);
}

void vb_board_session_end(struct vb_events *ev, double wall_s, enum vb_board_status status)
{
    unsigned char bytes[64];
    struct vb_proto p = {.bytes = bytes, .size = sizeof(bytes)};
    size_t end = vb_proto_begin(&p, DATA_END);

    vb_proto_int(&p, 1, (uint64_t)status);
    vb_proto_double(&p, 2, wall_s);
    vb_proto_end(&p, end);
    write_content(ev, wall_s, "_hparams_/session_end_info", &p);
}

#include "estimate/generation/generation_report.h"

#include "plan/ops/rates.h"

#include <string.h>

static void print_seconds(const char *name, double seconds, const char *note, weft_buf *out)
{
    char text[32];
    weft_buf_printf(out, "  %-24s %14s%s%s\n", name, weft_format_seconds(seconds, text),
                    note[0] ? "  " : "", note);
}

static void print_bytes(const char *name, int64_t bytes, const char *note, weft_buf *out)
{
    char text[32];
    weft_buf_printf(out, "  %-24s %14s%s%s\n", name, weft_format_bytes(bytes, text),
                    note[0] ? "  " : "", note);
}

static void print_sent(const weft_generation_estimate *e, weft_buf *out)
{
    char note[32];
    for (int a = 0; a < e->mesh.axis_count; a++) {
        snprintf(note, sizeof note, "%s, %d ranks", e->mesh.axis[a].name, e->mesh.axis[a].size);
        print_bytes(a ? "" : "sent per step and rank", e->sent[a], note, out);
    }
}

void weft_generation_report_print(const weft_generation_estimator *estimator, const char *cluster,
                                  const weft_generation_estimate *e, weft_buf *out)
{
    weft_buf_printf(out, "%s on %d rank%s (", estimator->folder, estimator->ranks,
                    estimator->ranks > 1 ? "s" : "");
    weft_generation_layout_name(e, out);
    weft_buf_printf(out, "), cluster %s", cluster);
    weft_rates_format_basis(estimator->cluster->device.rates, e->exact,
                            "weft profile --model of these sizes", out);
    weft_buf_printf(out, "\n  %-24s %14" PRId64 "  denoisers\n", "parameters", e->parameters);
    weft_buf_printf(out, "  %-24s %14" PRId64 "  text encoders\n", "", e->text_parameters);
    weft_buf_printf(out, "  %-24s %14.4g  per rank\n", "FLOPs per step", e->flops);
    const char *rule = estimator->options->cache;
    const bool cached = rule && strcmp(rule, "off") != 0;
    print_seconds("seconds per step", e->step,
                  cached ? "mean of all steps, if the feature cache skips nothing"
                         : "mean of all steps",
                  out);
    print_seconds("  compute", e->compute, "", out);
    print_seconds("  exposed communication", e->exposed, "", out);
    if (e->hidden > 0)
        print_seconds("  hidden communication", e->hidden, "during compute, not added", out);
    print_seconds("text encoding", e->text, "of a batch of prompts", out);
    print_seconds("first use of memory", e->first, "", out);
    print_seconds("decoding", e->decode, e->tiles[0] ? e->tiles : "untiled", out);
    print_seconds("seconds per video", e->video, "", out);
    print_sent(e, out);
    print_bytes("predicted peak", e->peak, "of the rank with the largest peak", out);
}

static json_t *axes_json(const weft_generation_estimate *e)
{
    json_t *list = json_array();
    for (int a = 0; a < e->mesh.axis_count; a++)
        json_array_append_new(list,
                              json_pack("{s:s,s:i,s:I}", "axis", e->mesh.axis[a].name, "ranks",
                                        e->mesh.axis[a].size, "bytes", (json_int_t)e->sent[a]));
    return list;
}

json_t *weft_generation_report_json(const weft_generation_estimator *estimator, const char *cluster,
                                    const weft_generation_estimate *e)
{
    weft_buf name = {0};
    weft_generation_layout_name(e, &name);
    json_t *json =
        json_pack("{s:s,s:s,s:s,s:i,s:s,s:I,s:I,s:f,s:I,s:o}", "format", "weft.estimate/1", "model",
                  estimator->folder, "cluster", cluster, "ranks", estimator->ranks, "layout",
                  name.data ? name.data : "", "parameters", (json_int_t)e->parameters,
                  "text_parameters", (json_int_t)e->text_parameters, "flops", e->flops,
                  "peak_bytes", (json_int_t)e->peak, "axes", axes_json(e));
    if (json)
        json_object_update_new(json,
                               json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:s}", "step_seconds",
                                         e->step, "compute_seconds", e->compute, "exposed_seconds",
                                         e->exposed, "hidden_seconds", e->hidden, "text_seconds",
                                         e->text, "first_seconds", e->first, "decode_seconds",
                                         e->decode, "video_seconds", e->video, "tiles", e->tiles));
    weft_buf_free(&name);
    return json;
}

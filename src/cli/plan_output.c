/* The result of a subcommand of weft plan: table, JSON, drawing. */
#include "cli/plan_output.h"

#include "base/fs.h"
#include "cli/options/args.h"

#include <stdio.h>

weft_status weft_plan_print_json(const json_t *json)
{
    WEFT_TRY(WEFT_ALLOCATED(json, "the plan as JSON"));
    if (json_dumpf(json, stdout, JSON_INDENT(1)) != 0)
        return weft_error_errno(WEFT_NOWHERE, "cannot write standard output");
    putchar('\n');
    return WEFT_OK;
}

weft_status weft_plan_ranks(const weft_args *args, int64_t all, int most, int *ranks)
{
    int64_t devices;
    WEFT_TRY(weft_args_i64(args, "--devices", 0, most, &devices));
    if (devices == 0 && all > most)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--devices"),
                          "the cluster %s has %" PRId64
                          " devices, and layouts are priced for at most %d; "
                          "give --devices N",
                          weft_args_string(args, "--on"), all, most);
    *ranks = (int)(devices ? devices : all);
    return WEFT_OK;
}

weft_status weft_plan_finish(const weft_args *args, json_t *json, weft_buf *text, weft_buf *svg)
{
    const char *svg_path = weft_args_string(args, "--svg"), *out = weft_args_string(args, "--out");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(json, "the plan as JSON"));
    if (svg_path && !svg)
        WEFT_GO(weft_error(
            WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--svg"),
            "the choice of (P, G, b) has no chart; weft plan pipeline draws the schedule"));
    WEFT_GO(weft_buf_check(text));
    if (svg_path) {
        WEFT_GO(weft_buf_check(svg));
        WEFT_GO(weft_file_write_atomic(svg_path, svg->data, svg->len));
    }
    if (out)
        WEFT_GO(weft_json_save(out, json));
    if (weft_args_flag(args, "--json"))
        WEFT_GO(weft_plan_print_json(json));
    else
        fputs(text->data, stdout);
out:
    weft_buf_free(text);
    if (svg)
        weft_buf_free(svg);
    json_decref(json);
    return status;
}

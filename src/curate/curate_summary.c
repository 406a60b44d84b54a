#include "curate/curate_summary.h"

#include "base/memory.h"

#include <stdio.h>

static double number(const json_t *row, const char *name)
{
    return json_number_value(json_object_get(row, name));
}

/* Prints the content of operators.json; NULL: nothing. */
static void print_operators(const json_t *table)
{
    size_t i;
    const json_t *row, *rows = json_object_get(table, "operators");
    if (!table)
        return;
    printf("%-24s %9s %9s %7s %10s %10s %10s\n", "operator", "input", "output", "failed", "seconds",
           "s/shot", "price");
    json_array_foreach(rows, i, row)
    {
        const json_t *price = json_object_get(row, "price");
        printf("%-24s %9lld %9lld %7lld %10.2f %10.4f ",
               json_string_value(json_object_get(row, "name")),
               json_integer_value(json_object_get(row, "input")),
               json_integer_value(json_object_get(row, "output")),
               json_integer_value(json_object_get(row, "failed")), number(row, "seconds"),
               number(row, "seconds_per_shot"));
        if (json_is_number(price))
            printf("%10.4f\n", json_number_value(price));
        else
            printf("%10s\n", "-");
    }
    printf("price: seconds per rejected shot; decoding for operators: %.2f s\n",
           number(table, "decode_seconds"));
}

void weft_curate_summary_print(const char *out, const weft_curate_report *r)
{
    printf("files            %8" PRId64 "  (%" PRId64 " video%s, %" PRId64 " sidecar%s, %" PRId64
           " other%s)\n",
           r->files, r->videos, weft_plural(r->videos), r->sidecars, weft_plural(r->sidecars),
           r->other_files, weft_plural(r->other_files));
    if (r->sidecars_unused > 0)
        printf("sidecars unused  %8" PRId64 "\n", r->sidecars_unused);
    printf("videos rejected  %8" PRId64 "\n", r->videos_rejected);
    printf("shots            %8" PRId64 "\n", r->shots);
    printf("shots rejected   %8" PRId64 "\n", r->shots_rejected);
    printf("clips            %8" PRId64 "  (%.1f s of %.1f s)\n", r->clips, r->seconds_out,
           r->seconds_in);
    if (r->clips_without_caption > 0)
        printf("without caption  %8" PRId64
               "  clip%s; a caption is VIDEO.txt or VIDEO.json next to the video\n",
               r->clips_without_caption, weft_plural(r->clips_without_caption));
    if (r->rejects[0])
        printf("rejects.jsonl             %s\n", r->rejects);
    if (r->captions_made + r->captions_failed > 0)
        printf("captions         %8" PRId64 "  (%" PRId64 " failed; %" PRId64 " request%s, %" PRId64
               " tokens)\n",
               r->captions_made, r->captions_failed, r->caption_requests,
               weft_plural(r->caption_requests), r->caption_tokens);
    print_operators(r->operators);
    printf("%s: clips/, metas/, manifest.jsonl, rejects.jsonl, summary.json\n", out);
}

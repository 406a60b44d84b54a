/* Reports of the worker, and the weights that they name. */
#include "serve/loaded_weights.h"
#include "serve/worker_messages.h"

#include <criterion/criterion.h>

#include <string.h>

static weft_worker_report read_line(const char *line)
{
    return weft_worker_report_read(line, (int64_t)strlen(line));
}

Test(worker_messages, reports_are_read)
{
    weft_worker_report r = read_line("{\"level\": \"progress\", \"done\": 3, \"total\": 40}");
    cr_assert(r.kind == WEFT_WORKER_PROGRESS && r.done == 3 && r.total == 40 && r.seconds_left < 0);
    r = read_line("{\"level\": \"progress\", \"done\": 4, \"total\": 40, \"seconds_left\": 2.5}");
    cr_assert_eq(r.seconds_left, 2.5);
    const struct {
        const char *status;
        weft_queue_event event;
    } ends[] = {{"finished", WEFT_QUEUE_FINISHED},
                {"stopped", WEFT_QUEUE_STOPPED},
                {"refused", WEFT_QUEUE_REFUSED}};
    for (int i = 0; i < 3; i++) {
        char line[96];
        snprintf(line, sizeof line, "{\"level\": \"job\", \"number\": 7, \"status\": \"%s\"}",
                 ends[i].status);
        r = read_line(line);
        cr_assert(r.kind == WEFT_WORKER_END && r.number == 7 && r.event == ends[i].event);
    }
}

Test(worker_messages, other_lines_are_messages)
{
    const char *const lines[] = {"",
                                 "text of a library",
                                 "{\"level\": \"error\", \"id\": \"x\"}",
                                 "{\"level\": \"job\", \"number\": 7}",
                                 "{\"level\": \"job\", \"status\": \"finished\"}",
                                 "[1]"};
    for (int i = 0; i < 6; i++)
        cr_assert_eq(read_line(lines[i]).kind, WEFT_WORKER_MESSAGE, "%s", lines[i]);
}

Test(worker_messages, a_stop_names_the_job)
{
    char line[64];
    for (int saves = 0; saves < 2; saves++) {
        const int length = weft_worker_stop_line(INT64_MAX, saves, line);
        cr_assert_eq(length, (int)strlen(line));
        json_t *json = json_loads(line, 0, NULL);
        cr_assert_eq(json_integer_value(json_object_get(json, "stop")), INT64_MAX);
        cr_assert_eq(json_is_true(json_object_get(json, "save")), saves);
        json_decref(json);
    }
}

Test(worker_messages, weights_of_a_dead_worker_are_unloaded)
{
    weft_loaded_weights w = {0};
    weft_worker_report r = read_line(
        "{\"level\": \"weights\", \"weights\": [{\"model\": \"m\", \"part\": \"vae\", "
        "\"adapters\": \"\","
        " \"bytes\": 64}, {\"model\": \"m\", \"part\": \"transformer\", \"adapters\": \"s:1\", "
        "\"bytes\": 128}], \"loads\": 5, \"unloads\": 3}");
    cr_assert_eq(r.kind, WEFT_WORKER_WEIGHTS);
    cr_assert_eq(weft_loaded_weights_bytes(&w), 0);
    weft_loaded_weights_set(&w, r.weights);
    cr_assert_eq(weft_loaded_weights_bytes(&w), 192);
    cr_assert(weft_loaded_weights_loads(&w) == 5 && weft_loaded_weights_unloads(&w) == 3);
    json_t *list = weft_loaded_weights_json(&w);
    cr_assert_eq(json_array_size(list), 2);
    json_decref(list);
    weft_loaded_weights_clear(&w);
    cr_assert(weft_loaded_weights_loads(&w) == 5 && weft_loaded_weights_unloads(&w) == 5);
    weft_loaded_weights_set(
        &w, read_line("{\"level\": \"weights\", \"weights\": [], \"loads\": 2, \"unloads\": 2}")
                .weights);
    cr_assert(weft_loaded_weights_loads(&w) == 7 && weft_loaded_weights_unloads(&w) == 7);
    weft_loaded_weights_clear(&w);
}

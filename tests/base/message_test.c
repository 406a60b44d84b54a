/* Classes of messages: the table, the fields of an error, file positions, copies for other threads.
 * */
#include "base/json.h"
#include "base/memory.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

Test(message, every_class_has_an_id_of_its_own_and_two_sentences)
{
    for (int i = 1; i < WEFT_MSG_COUNT; i++) {
        const weft_message_class kind = (weft_message_class)i;
        const char *id = weft_message_id(kind);
        cr_expect(id[0] != '\0');
        for (const char *c = id; *c; c++)
            cr_expect(islower((unsigned char)*c) || *c == '-', "%s", id);
        cr_expect_eq(weft_message_find(id), kind, "%s", id);
        cr_expect_eq(weft_message_cause(kind)[strlen(weft_message_cause(kind)) - 1], '.', "%s", id);
        cr_expect_eq(weft_message_remedy(kind)[strlen(weft_message_remedy(kind)) - 1], '.', "%s",
                     id);
    }
    cr_expect_eq(weft_message_find("no-such-id"), WEFT_MSG_NONE);
}

Test(message, a_former_id_is_not_the_id_of_a_class_and_finds_one)
{
    static const char *const former[] = {
#define FORMER(id, symbol) id,
#include "base/message_former.def"
#undef FORMER
    };
    for (size_t i = 0; i < sizeof former / sizeof *former; i++) {
        const weft_message_class kind = weft_message_find(former[i]);
        cr_expect(kind != WEFT_MSG_NONE && strcmp(weft_message_id(kind), former[i]) != 0, "%s",
                  former[i]);
        for (size_t k = 0; k < i; k++) /* sorted, so that no id occurs twice */
            cr_expect(strcmp(former[k], former[i]) < 0, "%s and %s", former[k], former[i]);
    }
}

Test(message, an_error_has_the_status_of_its_class_and_prints_its_place_first)
{
    cr_expect_eq(
        weft_error(WEFT_MSG_CONFIG_VALUE,
                   WEFT_AT(.file = "run.yaml", .line = 12, .key = "data.fps", WEFT_NUMBER(0)),
                   "%g is not above 0", 0.0),
        WEFT_E_CONFIG);
    cr_expect_str_eq(weft_error_message(), "run.yaml:12: data.fps: 0 is not above 0");
    cr_expect_str_eq(weft_error_text(), "0 is not above 0");
    cr_expect_eq(weft_error_class(), WEFT_MSG_CONFIG_VALUE);
    cr_expect_eq(weft_error_fields()->line, 12);
    cr_expect(weft_error_fields()->has_number && !weft_error_fields()->has_rank);
}

Test(message, a_caller_completes_the_place_and_does_not_replace_it)
{
    weft_status_code status =
        weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.key = "blocks.0.w"), "2 x 3 is not 3 x 2");
    status = weft_error_at(status, WEFT_AT(.file = "model.safetensors", .key = "other"));
    cr_expect_eq(status, WEFT_E_SHAPE);
    cr_expect_str_eq(weft_error_message(), "model.safetensors: blocks.0.w: 2 x 3 is not 3 x 2");
    (void)weft_error_at(status, WEFT_AT(.file = "run.yaml", .line = 3));
    cr_expect_str_eq(weft_error_message(),
                     "run.yaml:3: model.safetensors: blocks.0.w: 2 x 3 is not 3 x 2");
    cr_expect_str_eq(weft_error_fields()->file, "model.safetensors");
    (void)weft_error_add(status, "Give %d weights", 6);
    cr_expect_str_eq(weft_error_text(), "2 x 3 is not 3 x 2. Give 6 weights");
}

Test(message, arguments_may_come_from_the_last_error)
{
    (void)weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = "a", .key = "k"), "first");
    (void)weft_error(WEFT_MSG_RANK_FAILED, weft_error_fields(), "second after %s",
                     weft_error_text());
    cr_expect_str_eq(weft_error_message(), "a: k: second after first");
}

Test(message, an_error_keeps_its_details)
{
    char axis[] = "tp";
    (void)weft_error(
        WEFT_MSG_LAYOUT_INVALID,
        WEFT_AT(.file = "a", WEFT_DETAILS(WEFT_DETAIL("ranks", 3), WEFT_WORD("axis", axis))),
        "3 ranks");
    axis[0] = 'c';
    (void)weft_error_at(WEFT_E_CONFIG, WEFT_AT(.line = 4));
    weft_error_copy *copy = weft_error_save();
    weft_error_clear();
    cr_expect_null(weft_error_fields()->details);
    (void)weft_error_restore(copy);
    weft_free(copy);
    const weft_message_detail *d = weft_error_fields()->details;
    cr_assert(d && d[0].name && d[1].name && !d[2].name);
    cr_expect_str_eq(d[0].name, "ranks");
    cr_expect(d[0].number == 3 && !d[0].text);
    cr_expect_str_eq(d[1].text, "tp");
    char *line = weft_message_json("error", NULL, WEFT_MSG_LAYOUT_INVALID, weft_error_fields(),
                                   weft_error_text());
    cr_expect(strstr(line, "\"details\":{\"ranks\":3.0,\"axis\":\"tp\"}") ||
                  strstr(line, "\"details\": {\"ranks\": 3.0, \"axis\": \"tp\"}"),
              "%s", line);
    weft_free(line);
}

Test(message, errno_decides_the_class)
{
    static const struct {
        int error;
        weft_message_class kind;
        weft_status_code status;
    } of[] = {
        {ENOENT, WEFT_MSG_FILE_NOT_FOUND, WEFT_E_NOT_FOUND},
        {ENOSPC, WEFT_MSG_DISK_FULL, WEFT_E_SPACE},
        {EACCES, WEFT_MSG_PERMISSION_DENIED, WEFT_E_PERMISSION},
        {ENOMEM, WEFT_MSG_OUT_OF_MEMORY, WEFT_E_MEMORY},
        {EIO, WEFT_MSG_FILE_IO, WEFT_E_IO},
    };
    for (int i = 0; i < 5; i++) {
        errno = of[i].error;
        cr_expect_eq(weft_error_errno(WEFT_AT(.file = "x"), "cannot open"), of[i].status);
        cr_expect_eq(weft_error_class(), of[i].kind);
        cr_expect(strstr(weft_error_message(), strerror(of[i].error)));
    }
}

Test(message, a_copy_brings_an_error_to_another_thread)
{
    (void)weft_error(WEFT_MSG_RANK_FAILED, WEFT_AT(.file = "f", WEFT_RANK(3)), "no answer");
    (void)weft_error_at(WEFT_E_COMM, WEFT_AT(.file = "g"));
    weft_error_copy *copy = weft_error_save();
    (void)weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.file = "other"), "other");
    cr_expect_eq(weft_error_restore(copy), WEFT_E_COMM);
    weft_free(copy);
    cr_expect_str_eq(weft_error_message(), "g: f: no answer");
    cr_expect_eq(weft_error_class(), WEFT_MSG_RANK_FAILED);
    cr_expect_eq(weft_error_fields()->rank, 3);
    weft_error_clear();
    cr_expect_str_eq(weft_error_message(), "");
    cr_expect_eq(weft_error_class(), WEFT_MSG_NONE);
}

Test(message, a_line_of_json_has_every_field)
{
    char *line = weft_message_json("error", "train", WEFT_MSG_CONFIG_VALUE,
                                   WEFT_AT(.file = "run.yaml:7", .key = "seed",
                                           .value = "\xff"
                                                    "a",
                                           WEFT_RANK(0)),
                                   "a \"text\"");
    json_t *json;
    cr_assert_eq(weft_json_parse(line, (int64_t)strlen(line), "line", &json), WEFT_OK, "%s", line);
    cr_expect_str_eq(json_string_value(json_object_get(json, "id")), "config-value");
    cr_expect_str_eq(json_string_value(json_object_get(json, "file")), "run.yaml");
    cr_expect_eq(json_integer_value(json_object_get(json, "line")), 7);
    cr_expect_str_eq(json_string_value(json_object_get(json, "value")), "?a");
    cr_expect_eq(json_integer_value(json_object_get(json, "rank")), 0);
    cr_expect_str_eq(json_string_value(json_object_get(json, "message")), "a \"text\"");
    json_decref(json);
    weft_free(line);
}

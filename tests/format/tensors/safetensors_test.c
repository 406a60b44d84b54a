/* safetensors: written files are read back, and every wrong field of a header is refused with its
 * position. */
#include "base/fs.h"
#include "format/tensors/safetensors.h"
#include "format/tensors/safetensors_write.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];

static void set_up(void)
{
    strcpy(folder, "/tmp/weft-tensors-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void tear_down(void)
{
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(safetensors, .init = set_up, .fini = tear_down);

/* <folder>/x.safetensors from a header text and `data_bytes` bytes 0, 1, 2 ...; promised: the
 * header length that the file claims, -1: the true one. */
static const char *write_file(const char *header, int64_t data_bytes, int64_t promised)
{
    static char path[96];
    weft_buf file = {0};
    const int64_t length = (int64_t)strlen(header);
    const uint64_t claim = (uint64_t)(promised < 0 ? length : promised);
    for (int i = 0; i < 8; i++) {
        const unsigned char byte = (unsigned char)(claim >> 8 * i);
        weft_buf_append(&file, &byte, 1);
    }
    weft_buf_append(&file, header, length);
    for (int64_t i = 0; i < data_bytes; i++) {
        const unsigned char byte = (unsigned char)i;
        weft_buf_append(&file, &byte, 1);
    }
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    cr_assert_eq(weft_file_write_atomic(path, file.data, file.len), WEFT_OK);
    weft_buf_free(&file);
    return path;
}

/* Opening fails with this class, for this file and the tensor `key` (NULL: the whole file). */
static void refused(const char *header, int64_t data_bytes, int64_t promised,
                    weft_message_class kind, const char *key)
{
    weft_tensors *t;
    const char *path = write_file(header, data_bytes, promised);
    const weft_status_code status = weft_tensors_open(path, &t);
    const weft_message_fields *at = weft_error_fields();
    cr_assert_eq((int)status, weft_message_status(kind), "%s: %s", header,
                 weft_status_name(status));
    cr_assert_str_eq(weft_message_id(weft_error_class()), weft_message_id(kind), "%s: %s", header,
                     weft_error_message());
    cr_assert_str_eq(at->file, path);
    cr_assert_str_eq(at->key ? at->key : "", key ? key : "", "%s: %s", header,
                     weft_error_message());
}

#define ENTRY(name, dtype, shape, begin, end)                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

Test(safetensors, lies)
{
    const char *good = "{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "U8", "[4]", 8, 12) "}";
    weft_tensors *t;
    cr_assert_eq(weft_tensors_open(write_file(good, 12, -1), &t), WEFT_OK, "%s",
                 weft_error_message());
    weft_tensors_close(t);
    refused(good, 12, 5000, WEFT_MSG_FORMAT_UNKNOWN, NULL);
    refused(good, 12, INT64_MAX, WEFT_MSG_FORMAT_UNKNOWN, NULL);
    refused(good, 12, 20, WEFT_MSG_JSON_SYNTAX, NULL);
    refused(good, 11, -1, WEFT_MSG_FORMAT_DAMAGED, "b");
    refused(good, 13, -1, WEFT_MSG_FORMAT_DAMAGED, NULL); /* bytes after the last tensor */
    refused("[1, 2]", 0, -1, WEFT_MSG_FORMAT_DAMAGED, NULL);
    refused("{", 0, -1, WEFT_MSG_JSON_SYNTAX, NULL);
    refused("{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("a", "F32", "[2]", 0, 8) "}", 8, -1,
            WEFT_MSG_JSON_SYNTAX, NULL);
    refused("{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 4, 12) "}", 12, -1,
            WEFT_MSG_FORMAT_DAMAGED, "b");
    refused("{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[1]", 12, 16) "}", 16, -1,
            WEFT_MSG_FORMAT_DAMAGED, "b");
    refused("{" ENTRY("a", "F32", "[3]", 0, 8) "}", 8, -1, WEFT_MSG_FORMAT_DAMAGED, "a");
    cr_assert(strstr(weft_error_text(), "12"), "%s", weft_error_text()); /* bytes of the shape */
    refused("{" ENTRY("a", "F32", "[2]", 8, 0) "}", 8, -1, WEFT_MSG_FORMAT_DAMAGED, "a");
    refused("{" ENTRY("a", "F32", "[2]", -8, 0) "}", 8, -1, WEFT_MSG_FORMAT_DAMAGED, "a");
    refused("{" ENTRY("a", "F32", "[2]", 0, 9223372036854775807) "}", 8, -1,
            WEFT_MSG_FORMAT_DAMAGED, "a");
    refused("{" ENTRY("a", "F32", "[4611686018427387904,4]", 0, 8) "}", 8, -1,
            WEFT_MSG_FORMAT_DAMAGED, "a");
    refused("{" ENTRY("a", "F32", "[-2]", 0, 8) "}", 8, -1, WEFT_MSG_FORMAT_DAMAGED, "a");
    refused("{" ENTRY("a", "F32", "[2.0]", 0, 8) "}", 8, -1, WEFT_MSG_FORMAT_DAMAGED, "a");
    refused("{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,2]", 0, 8) "}", 8, -1, WEFT_MSG_FORMAT_DAMAGED,
            "a");
    refused("{" ENTRY("a", "F4", "[2]", 0, 8) "}", 8, -1, WEFT_MSG_FORMAT_UNSUPPORTED, "a");
    cr_assert_str_eq(weft_error_fields()->value, "F4");
    refused("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, -1, WEFT_MSG_FORMAT_DAMAGED, "a");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, -1, WEFT_MSG_FORMAT_DAMAGED, "a");
    refused("{\"a\":3}", 8, -1, WEFT_MSG_FORMAT_DAMAGED, "a");
    char path[96];
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    cr_assert_eq(weft_file_write_atomic(path, "abc", 3), WEFT_OK);
    cr_assert_eq(weft_tensors_open(path, &t), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_FORMAT_DAMAGED);
    cr_assert_eq(weft_tensors_open("/no/such.safetensors", &t), WEFT_E_NOT_FOUND);
    cr_assert_eq(weft_tensors_open(folder, &t), WEFT_E_NOT_FOUND);
}

static void write_three(const char *dir, int64_t max_shard_bytes, weft_dtype stored)
{
    static const float a[6] = {1, -2, 0.5f, 65504, 1e-8f, -0.0f};
    static const int64_t b[2] = {INT64_MIN, 7};
    weft_tensors_writer *w;
    cr_assert_eq(weft_tensors_writer_create(dir, "diffusion_pytorch_model", max_shard_bytes, &w),
                 WEFT_OK);
    cr_assert_eq(weft_tensors_writer_metadata(w, "weft", "test"), WEFT_OK);
    cr_assert_eq(weft_tensors_writer_declare(w, "z.weight", stored, 2, (const int64_t[]){2, 3}),
                 WEFT_OK);
    cr_assert_eq(weft_tensors_writer_declare(w, "a.index", WEFT_I64, 1, (const int64_t[]){2}),
                 WEFT_OK);
    cr_assert_eq(weft_tensors_writer_declare(w, "m.empty", WEFT_F32, 2, (const int64_t[]){0, 5}),
                 WEFT_OK);
    cr_assert_eq(weft_tensors_writer_data(w, "z.weight", WEFT_F32, a), WEFT_OK);
    cr_assert_eq(weft_tensors_writer_data(w, "a.index", WEFT_I64, b), WEFT_OK);
    cr_assert_eq(weft_tensors_writer_data(w, "m.empty", WEFT_F32, a), WEFT_OK);
    cr_assert_eq(weft_tensors_writer_finish(w), WEFT_OK, "%s", weft_error_message());
    weft_tensors_writer_free(w);
}

static void check_three(const char *path, weft_dtype stored)
{
    weft_tensors *t;
    cr_assert_eq(weft_tensors_open(path, &t), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_tensors_count(t), 3);
    cr_assert_str_eq(weft_tensors_at(t, 0)->name, "a.index");
    cr_assert_str_eq(weft_tensors_metadata(t, "weft"), "test");
    cr_assert_null(weft_tensors_find(t, "z.bias"));
    const weft_stored_tensor *z = weft_tensors_find(t, "z.weight"),
                             *index = weft_tensors_find(t, "a.index");
    cr_assert(z && index);
    cr_assert(z->dtype == stored && z->rank == 2 && z->dim[0] == 2 && z->dim[1] == 3 &&
              z->count == 6);
    float value[6];
    weft_tensor_to_f32(z, value);
    cr_assert_eq(value[1], -2);
    cr_assert_float_eq(value[3], 65504, stored == WEFT_BF16 ? 256 : 0);
    int64_t number[2];
    memcpy(number, index->data, sizeof number);
    cr_assert(number[0] == INT64_MIN && number[1] == 7);
    weft_tensors_close(t);
}

Test(safetensors, round_trip_one_file)
{
    for (int i = 0; i < 3; i++) {
        const weft_dtype stored = (const weft_dtype[]){WEFT_F32, WEFT_BF16, WEFT_F16}[i];
        write_three(folder, 0, stored);
        check_three(folder, stored);
        weft_names names = {0};
        cr_assert_eq(weft_list_dir(folder, false, &names), WEFT_OK);
        cr_assert_eq(names.count, 1); /* nothing temporary is left */
        cr_assert_str_eq(names.name[0], "diffusion_pytorch_model.safetensors");
        weft_names_free(&names);
    }
}

Test(safetensors, shards_with_index)
{
    char path[160];
    write_three(folder, 24, WEFT_F32); /* 24 + 16 + 0 bytes: two shards */
    check_three(folder, WEFT_F32);
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model.safetensors.index.json", folder);
    check_three(path, WEFT_F32);
    json_t *index;
    cr_assert_eq(weft_json_load(path, &index), WEFT_OK);
    cr_assert_eq(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")), 40);
    const char *file =
        json_string_value(json_object_get(json_object_get(index, "weight_map"), "a.index"));
    cr_assert_str_eq(file, "diffusion_pytorch_model-00002-of-00002.safetensors");
    /* an index that names a tensor that no file has, then one that leads out of the folder */
    weft_tensors *t;
    json_object_set_new(json_object_get(index, "weight_map"), "ghost", json_string(file));
    cr_assert_eq(weft_json_save(path, index), WEFT_OK);
    cr_assert_eq(weft_tensors_open(folder, &t), WEFT_E_FORMAT);
    json_object_set_new(json_object_get(index, "weight_map"), "ghost",
                        json_string("../x.safetensors"));
    cr_assert_eq(weft_json_save(path, index), WEFT_OK);
    cr_assert_eq(weft_tensors_open(folder, &t), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_FORMAT_DAMAGED, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->key, "ghost");
    cr_assert_str_eq(weft_error_fields()->value, "../x.safetensors");
    json_decref(index);
    /* a shard is missing */
    write_three(folder, 24, WEFT_F32);
    snprintf(path, sizeof path, "%s/diffusion_pytorch_model-00001-of-00002.safetensors", folder);
    cr_assert_eq(remove(path), 0);
    cr_assert_eq(weft_tensors_open(folder, &t), WEFT_E_NOT_FOUND);
    cr_assert_eq(weft_error_class(), WEFT_MSG_MODEL_NOT_FOUND, "%s", weft_error_message());
    cr_assert(strstr(weft_error_text(), "00001-of-00002"), "%s", weft_error_text());
}

/* One file over an earlier sharded set: the new tensors are read, not those of the old index. */
Test(safetensors, one_file_over_shards)
{
    write_three(folder, 24, WEFT_F32);
    write_three(folder, 0, WEFT_BF16);
    check_three(folder, WEFT_BF16);
}

/* A writer that is given up leaves nothing, also after its first shard was whole. */
Test(safetensors, abandoned_writer)
{
    weft_tensors_writer *w;
    const float data[8] = {0};
    cr_assert_eq(weft_tensors_writer_create(folder, "model", 16, &w), WEFT_OK);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(weft_tensors_writer_declare(w, (const char *[]){"a", "b", "c"}[i], WEFT_F32, 1,
                                                 (const int64_t[]){4}),
                     WEFT_OK);
    cr_assert_eq(weft_tensors_writer_data(w, "a", WEFT_F32, data), WEFT_OK);
    cr_assert_eq(weft_tensors_writer_data(w, "b", WEFT_F32, data), WEFT_OK);
    weft_tensors_writer_free(w);
    weft_names names = {0};
    cr_assert_eq(weft_list_dir(folder, false, &names), WEFT_OK);
    cr_assert_eq(names.count, 0);
    weft_names_free(&names);
}

/* Every allocation of opening fails once: no crash, no tensor, and the memory error. */
Test(safetensors, out_of_memory)
{
    write_three(folder, 24, WEFT_F32);
    weft_tensors *t;
    const int64_t before = weft_alloc_count();
    cr_assert_eq(weft_tensors_open(folder, &t), WEFT_OK);
    const int64_t needed = weft_alloc_count() - before;
    weft_tensors_close(t);
    cr_assert_gt(needed, 3);
    for (int64_t n = 1; n <= needed; n++) {
        weft_alloc_fail_at(n);
        const weft_status_code status = weft_tensors_open(folder, &t);
        weft_alloc_fail_at(0);
        if (status == WEFT_OK) /* an allocation with a way around it */
            weft_tensors_close(t);
        else
            cr_assert_eq(status, WEFT_E_MEMORY, "allocation %d: %s", (int)n, weft_error_message());
    }
}

#include "base/config_schema.h"

#include <criterion/criterion.h>
#include <string.h>

static const char *const kinds[] = {"adamw", "off", "1", NULL};
static const weft_key optimizer_keys[] = {
    {"kind", WEFT_KEY_ENUM, 0, "adamw", "", "method", .choices = kinds,
     .also_values = "adam=adamw"},
    {"betas", WEFT_KEY_F64_LIST, 0, "[0.9, 0.95]", "", "decay"},
};
static const weft_section optimizer_section = {
    "optimizer", "the update", 0, optimizer_keys, WEFT_COUNT(optimizer_keys), .single = "kind"};
static const weft_key keys[] = {
    {"out", WEFT_KEY_STRING, 0, NULL, "", "folder", .also = "output_dir", .earlier = "folder to"},
    {"steps", WEFT_KEY_I64, 0, "1000", "steps", "length", .min = 1, .max = 10},
    {"old", WEFT_KEY_GONE, .help = "remove it"},
    {"optimizer", WEFT_KEY_SECTION, 0, .section = &optimizer_section},
};
static const weft_section root = {"run", "a run", 0, keys, WEFT_COUNT(keys)};

static json_t *schema, *properties;
static void make(void)
{
    cr_assert(weft_config_schema(&root, &schema) == WEFT_OK);
    properties = json_object_get(schema, "properties");
}
static void drop(void)
{
    json_decref(schema);
}
TestSuite(config_schema, .init = make, .fini = drop);

static json_t *form(const char *key, size_t i)
{
    return json_array_get(json_object_get(json_object_get(properties, key), "anyOf"), i);
}

Test(config_schema, names)
{
    json_t *earlier = json_object_get(properties, "folder");
    cr_assert(json_is_true(json_object_get(earlier, "deprecated")));
    cr_assert(json_is_true(json_object_get(json_object_get(properties, "to"), "deprecated")));
    cr_assert_null(json_object_get(json_object_get(properties, "output_dir"), "deprecated"));
    cr_assert_null(json_object_get(properties, "old"));
    cr_assert_eq(json_object_size(properties), 6); /* out with 3 other names, steps, optimizer */
    cr_assert(json_is_false(json_object_get(schema, "additionalProperties")));
}

/* A file sets a required key by one of its names. */
Test(config_schema, required)
{
    json_t *all = json_object_get(schema, "allOf");
    cr_assert_eq(json_array_size(all), 1);
    json_t *names = json_object_get(json_array_get(all, 0), "anyOf");
    cr_assert_eq(json_array_size(names), 4);
    json_t *first = json_object_get(json_array_get(names, 0), "required");
    cr_assert_str_eq(json_string_value(json_array_get(first, 0)), "out");
}

Test(config_schema, values)
{
    json_t *whole = json_array_get(json_object_get(form("steps", 0), "anyOf"), 0);
    cr_assert_eq(json_integer_value(json_object_get(whole, "minimum")), 1);
    cr_assert_eq(json_integer_value(json_object_get(whole, "maximum")), 10);
    json_t *steps = json_object_get(properties, "steps");
    cr_assert_eq(json_integer_value(json_object_get(steps, "default")), 1000);
    cr_assert_str_eq(json_string_value(json_object_get(steps, "description")), "length (steps)");
}

/* A section with a single key is a mapping or the value of this key. */
Test(config_schema, sections)
{
    json_t *forms = json_object_get(form("optimizer", 0), "anyOf");
    json_t *inner = json_object_get(json_array_get(forms, 0), "properties");
    json_t *choices = json_object_get(json_array_get(forms, 1), "enum");
    cr_assert_eq(json_array_size(choices), 5); /* 3 choices, 1 as a number, an earlier name */
    cr_assert(json_is_integer(json_array_get(choices, 3)));
    cr_assert_str_eq(json_string_value(json_array_get(choices, 4)), "adam");
    json_t *betas = json_object_get(json_object_get(inner, "betas"), "default");
    cr_assert_float_eq(json_real_value(json_array_get(betas, 1)), 0.95, 1e-12);
}

"""Expressions that a table has in its log, written by whoever wrote it: constraints, generated columns, defaults.

They may compute a value from a row's columns, and nothing else: what is not known to do only that is refused.
"""

from __future__ import annotations

from deltamerge.exceptions import DeltaAnalysisException, DeltaParseException
from deltamerge.sql.operands import GRAMMAR, VARIABLE, starts_subquery
from deltamerge.sql.tokens import Kind, Token, name_end, tokenize, words

_BUILTIN = ((), ("BUILTIN",), ("SYSTEM", "BUILTIN"))
# Left out are functions that call Java (reflect), that read files (input_file_name; from_xml, from_avro and
# from_protobuf by their options), aggregates, window functions and generators.
_FUNCTIONS = words(
    """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate approx_top_k_estimate array array_append
    array_compact array_contains array_distinct array_except array_insert array_intersect array_join array_max
    array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
    arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh base64 bigint bin binary bit_count
    bit_get bit_length bitmap_bit_position bitmap_bucket_number bitmap_count boolean bround btrim cardinality
    cast cbrt ceil ceiling char char_length character_length chr coalesce collate collation concat concat_ws
    contains conv convert_timezone cos cosh cot crc32 csc curdate current_catalog current_database current_date
    current_path current_schema current_time current_timestamp current_timezone current_user date date_add
    date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day
    dayname dayofmonth dayofweek dayofyear decimal decode degrees div double e element_at elt encode endswith
    equal_null exists exp expm1 extract factorial filter find_in_set flatten float floor forall format_number
    format_string from_base32 from_csv from_json from_unixtime from_utc_timestamp get get_json_object getbit
    greatest hash hex hll_sketch_estimate hll_union hmac hour hypot if ifnull initcap instr int is_valid_utf8
    is_valid_variant is_variant_null isnan isnotnull isnull jaro_winkler_similarity json_array_length
    json_object_keys json_tuple kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint
    kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float last_day lcase least left len length levenshtein ln localtime localtimestamp
    locate log log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
    make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat
    map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with
    mask md5 minute mod monotonically_increasing_id month monthname months_between named_struct nanvl negative
    next_day now nullif nullifzero nvl nvl2 octet_length overlay parse_json parse_url pi pmod position positive
    pow power printf quarter quote radians raise_error rand randn random randstr reduce regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat replace
    reverse right rint round rpad rtrim schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg sec
    second sentences sequence session_user session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned
    shuffle sign signum sin sinh size slice smallint sort_array soundex space spark_partition_id split
    split_part sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid startswith str_to_map string
    struct substr substring substring_index tan tanh theta_difference theta_intersection theta_sketch_estimate
    theta_union time time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
    time_to_millis time_to_seconds time_trunc timestamp timestamp_micros timestamp_millis timestamp_nanos
    timestamp_seconds timestampadd timestampdiff tinyint to_base32 to_binary to_char to_csv to_date to_json
    to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp
    to_varchar to_variant_object to_xml transform transform_keys transform_values translate trim trunc try_add
    try_aes_decrypt try_cast try_divide try_element_at try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url try_subtract
    try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8
    try_variant_array_append try_variant_get try_variant_insert try_variant_set tuple_difference_double
    tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
    tuple_intersection_theta_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
    tuple_sketch_theta_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer typeof ucase unbase64 unhex uniform unix_date unix_micros unix_millis unix_nanos
    unix_seconds unix_timestamp upper url_decode url_encode user uuid validate_utf8 variant_array_append
    variant_delete variant_get variant_insert variant_set variant_strip_nulls vector_avg
    vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
    version weekday weekofyear width_bucket window window_time xpath xpath_boolean xpath_double xpath_float
    xpath_int xpath_long xpath_number xpath_short xpath_string xxhash64 year zeroifnull zip_with
    """
)
# Words of the grammar before a bracket that opens no call.
_OPERATORS = GRAMMAR - words("FIRST LAST OVER FILTER GROUP CURRENT") | words("XOR REGEXP RLIKE GEOMETRY GEOGRAPHY")


def check_stored(sql: str, place: str) -> str:
    """Return an expression of a table, or refuse it where it does more than compute a value from a row.

    Args:
        place: Where the table has it, such as ``the CHECK constraint positive``.
    """
    reason = _reason(sql)
    if reason is not None:
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_EXPRESSION",
            f"{place[:1].upper()}{place[1:]} of the table is {sql}, which {reason}. It comes from the table's log and "
            "is not evaluated: only built-in functions that compute a value from a row are. If you trust the table, "
            "write it with Delta for Spark, or change the expression there.",
            parameters={"expression": sql, "causedBy": reason},
        )
    return sql


def _reason(sql: str) -> str | None:
    if VARIABLE in sql:
        return "has a variable that Spark would replace by a setting"
    try:
        tokens = tokenize(sql)
    except DeltaParseException as error:
        return f"cannot be read: {str(error).splitlines()[0]}"
    for index, token in enumerate(tokens):
        if token.text in ("$", "{", ";"):
            return f"has {token.text} outside of a string"
        if starts_subquery(tokens, index) or token.upper in ("SELECT", "OVER"):
            return "has a subquery or a window"
    return next((f"calls {name}" for name in _calls(tokens) if name is not None), None)


def _calls(tokens: tuple[Token, ...]) -> list[str]:
    """Return the names of what is called and not known to be harmless, as they are written."""
    found: list[str] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        end = name_end(tokens, index) if token.is_identifier else index + 1
        if end < len(tokens) and tokens[end].text == "(":
            written = "".join(part.text for part in tokens[index:end])
            if token.kind is Kind.STRING:
                # In double quotes it may be a name.
                found.append(written)
            elif token.is_identifier and not _is_harmless(tokens[index:end:2]):
                found.append(written)
        index = end
    return found


def _is_harmless(parts: tuple[Token, ...]) -> bool:
    *qualifier, name = (part.name.upper() for part in parts)
    if len(parts) == 1 and parts[0].kind is Kind.WORD and name in _OPERATORS:
        return True
    return tuple(qualifier) in _BUILTIN and name.lower() in _FUNCTIONS

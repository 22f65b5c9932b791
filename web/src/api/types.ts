// Short names for the types generated from the API's OpenAPI document. Leaf: everything may import it.
import type { components } from "./schema";

type Schemas = components["schemas"];

export type AppliedPolicy = Schemas["AppliedPolicy"];
export type BlockMoment = Schemas["BlockMoment"];
export type ChainBlock = Schemas["ChainBlock"];
export type Engine = Schemas["Engine"];
export type EventPage = Schemas["EventPage"];
export type EventRow = Schemas["EventRow"];
export type PolicyBody = Schemas["PolicyBody"];
export type PolicyChange = Schemas["PolicyChange"];
export type PolicyHistoryEntry = Schemas["PolicyHistoryEntry"];
export type PolicyMarker = Schemas["PolicyMarker"];
export type PolicyState = Schemas["PolicyState"];
export type RequestDetail = Schemas["RequestDetail"];
export type RequestPage = Schemas["RequestPage"];
export type RequestRow = Schemas["RequestRow"];
export type Summary = Schemas["Summary"];
export type TierFill = Schemas["TierFill"];
export type Timeline = Schemas["Timeline"];
export type TimelinePoint = Schemas["TimelinePoint"];
export type TokenSplit = Schemas["TokenSplit"];
